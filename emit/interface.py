"""The C interface of a stand-alone operator: one function of plain pointers, numbers and sizes.

    int NAME(const float *A, float alpha, double *inout, float *result, int64_t M, ...)

Arguments come in the order of the operator's parameters, then its results, then the sizes that stay
symbolic. Arrays are dense and row-major; scalars are passed by value; f16 and bf16 are their bits.
C source, header and machine code of LLVM all have this interface (`polyc.emit.standalone`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.rewrite import renamed_function
from polyc.emit.names import KEYWORDS, LIBRARY, CNames
from polyc.poly.dtypes import DType
from polyc.poly.records import dataclass
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


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument: `array` as the Scop has it, `name` as C has it."""

    name: str
    array: Array
    role: Role

    @property
    def dtype(self) -> DType:
        """The type of the array's elements, or the scalar's."""
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
        names = CNames(taken)
        extra = {b.name: names.fresh(b.name) for b in fn.buffers if b.name not in arrays}
        return replace(renamed_function(fn, arrays | extra, dict(self.sizes), names), name=self.name)


def interface_of(scop: Scop, name: str | None = None) -> Interface:
    """The interface of an operator; `name` of its function (None: the operator's own, made fit for C)."""
    names = CNames({*KEYWORDS, *LIBRARY})
    symbol = names.fresh(name or scop.name)
    parameters = []
    for array in [*(scop.arrays[a] for a in scop.args), *(scop.arrays[r] for r in scop.results)]:
        role: Role = "scalar" if array.scalar else "out" if array.name in scop.results else array.kind  # type: ignore[assignment]
        parameters.append(Parameter(names.fresh(array.name), replace(array, shape=array.outside, given=None), role))
    return Interface(symbol, tuple(parameters), tuple((p, names.fresh(p)) for p in scop.params))


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
