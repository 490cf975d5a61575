"""The C interface of a stand-alone operator: one function of plain pointers, numbers and sizes.

    int NAME(const float *A, float alpha, double *inout, float *result, int64_t M, ...)

Arguments come in the order of the operator's parameters, then its results, then the sizes that stay
symbolic. Arrays are dense and row-major; scalars are passed by value; f16 and bf16 are their bits.
C source, header and machine code of LLVM all have this interface (`polyc.emit.standalone`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.rewrite import Names, renamed_function
from polyc.poly.dtypes import DType
from polyc.poly.scop import Array, Scop

Role = Literal["in", "inout", "out", "scalar"]

OK, NO_MEMORY, OUT_OF_BOUNDS, BAD_SIZES = 0, 1, 2, 3
"""What the function returns."""

STATUS = {
    "OK": (OK, "done"),
    "NO_MEMORY": (NO_MEMORY, "no memory for local arrays; nothing was written"),
    "OUT_OF_BOUNDS": (OUT_OF_BOUNDS, "a subscript or bound read from an array is outside"),
    "BAD_SIZES": (BAD_SIZES, "sizes that the operator cannot run with; nothing was written"),
}

KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    "asm class new delete this template private public protected friend operator namespace using try catch throw "
    "virtual typename export explicit mutable bool true false and or not xor typeof".split()
)
"""Words of C and C++ that cannot be names of arguments."""

LIBRARY = frozenset(
    "main NAN INFINITY HUGE_VAL errno malloc calloc realloc free abort exit memcpy memset memmove memcmp abs labs "
    "llabs div ldiv rand srand time clock signal raise remove rename read write open close link unlink access index "
    "rindex printf puts putchar getchar scanf system atoi atof strlen strcmp sin cos tan asin acos atan atan2 sinh "
    "cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p logb pow sqrt cbrt hypot erf erfc gamma lgamma "
    "tgamma ceil floor trunc round rint nearbyint fma fmin fmax fmod fabs fdim modf frexp ldexp scalbn copysign "
    "remainder significand drem finite isinf isnan j0 j1 jn y0 y1 yn select send recv accept bind connect listen "
    "socket pipe fork wait kill pause sleep alarm dup times utime sync swab step advance random linux unix".split()
)
"""Names of the C library, which a function of ours must not replace nor an argument hide."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument: `array` as the Scop has it, `name` as C has it."""

    name: str
    array: Array
    role: Role

    @property
    def dtype(self) -> DType:
        return self.array.dtype


@dataclass(frozen=True, slots=True)
class Interface:
    """The function `name`. `sizes` are the symbolic sizes (name in the Scop, name in C), in order."""

    name: str
    parameters: tuple[Parameter, ...]
    sizes: tuple[tuple[str, str], ...]

    def named(self, fn: Function) -> Function:
        """Loops of the same Scop with the names of this interface, and no name that C has taken."""
        arrays = {p.array.name: p.name for p in self.parameters}
        taken = {*KEYWORDS, *LIBRARY, *arrays.values(), *(c for _, c in self.sizes), self.name}
        names = _CNames(taken)
        extra = {b.name: names.fresh(b.name) for b in fn.buffers if b.name not in arrays}
        return replace(renamed_function(fn, arrays | extra, dict(self.sizes), names), name=self.name)


def interface_of(scop: Scop, name: str | None = None) -> Interface:
    """The interface of an operator; `name` of its function (None: the operator's own, made fit for C)."""
    names = _CNames({*KEYWORDS, *LIBRARY})
    symbol = names.fresh(name or scop.name)
    parameters = []
    for array in [*(scop.arrays[a] for a in scop.args), *(scop.arrays[r] for r in scop.results)]:
        role: Role = "scalar" if array.scalar else "out" if array.name in scop.results else array.kind  # type: ignore[assignment]
        parameters.append(Parameter(names.fresh(array.name), array, role))
    return Interface(symbol, tuple(parameters), tuple((p, names.fresh(p)) for p in scop.params))


def identifier(name: str) -> str:
    """`name` with what C has no letters for replaced; never empty, never reserved to the compiler."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return text if re.match(r"[A-Za-z]", text) else f"x{text}" if text.startswith("_") else f"x_{text}"


class _CNames(Names):
    """Hands out identifiers of C."""

    def __init__(self, taken: Iterable[str]) -> None:
        super().__init__(set(taken))

    def fresh(self, wanted: str) -> str:
        return super().fresh(identifier(wanted))


def role_text(p: Parameter, shape: str) -> str:
    """What the documentation of an argument says."""
    bits = ", as its bits" if p.dtype.name in ("f16", "bf16") else ""
    if p.role == "scalar":
        return f"{p.dtype.name}{bits}, a number"
    does = {"in": "read only", "inout": "read and updated", "out": "written, whatever it held"}[p.role]
    return f"{p.dtype.name}[{shape}]{bits}, {does}"


def status_names(name: str) -> Mapping[str, tuple[int, str]]:
    """Macro, value and meaning of every return value."""
    return {f"{name.upper()}_{key}": value for key, value in STATUS.items()}
