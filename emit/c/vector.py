"""Vector forms of operators that C has no symbol for, written so that compilers see vectors.

A loop over lanes is correct everywhere, but gcc makes scalar code of it once it is inlined.
What kernels use most therefore has a direct form: masks and integer operations on whole
vectors, the builtins of x86 for fma, rounding and sqrt, and clang's elementwise builtins.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.emit.c.types import SCALAR, c_type
from polyc.poly.dtypes import BY_NAME, DType

_ROUND_MODE = {"round": 0, "floor": 1, "ceil": 2, "trunc": 3}
_CLANG = {"fma": "fma", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "sqrt": "sqrt"}


def bits_of(dtype: DType, lanes: int, vector: Callable[[DType, int], str]) -> str:
    """The vector of signed integers as wide as `dtype`."""
    return vector(BY_NAME[f"i{max(8, dtype.bits)}"], lanes)


def conversion(text: str, source: DType, to: DType, lanes: int, vector: Callable[[DType, int], str]) -> str:
    """A vector of `source` converted to `to`, in steps that gcc has instructions for.

    gcc 12 converts lane by lane where widths differ by more than a factor of 2, and between floats and integers of
    less than 32 bits. (Values that the narrower type does not have are undefined for floats; here as for scalars.)
    """
    for step in [*_between(source, to), to]:
        text = f"__builtin_convertvector({text}, {vector(step, lanes)})"
    return text


def widening(source: DType, to: DType, lanes: int, name: str) -> str | None:
    """A function that makes 32-bit integers of a register full of bytes by x86's instruction; None for others."""
    if source.name not in ("i8", "u8") or to.bits != 32 or to.is_float or lanes != 16:
        return None
    t, s, sign = c_type(to, lanes), c_type(source, lanes), "s" if source.kind == "int" else "z"
    bytes_, words = (f"__attribute__((vector_size({n}))) {kind}" for n, kind in ((16, "char"), (64, "int")))
    steps = conversion("a", source, to, lanes, c_type)
    return "\n".join((
        f"static inline {t} {name}({s} a) {{",
        "#if defined(__AVX512F__) && !defined(__clang__)",
        f"  return ({t})__builtin_ia32_pmov{sign}xbd512_mask(({bytes_})a, ({words}){{0}}, (unsigned short)-1);",
        "#else",
        f"  return {steps};",
        "#endif",
        "}",
    ))  # fmt: skip


def _between(source: DType, to: DType) -> list[DType]:
    """The types on the way from one type to another."""
    if source.is_float and to.is_float:
        return []
    if source.is_float or to.is_float:
        whole = to if source.is_float else source
        if whole.bits >= 32:
            return []
        i32 = BY_NAME["i32"]
        return [i32, *_between(i32, to)] if source.is_float else [*_between(source, i32), i32]
    low, high = sorted((max(8, source.bits), max(8, to.bits)))
    widths = [w for w in (16, 32) if low < w < high]
    return [BY_NAME[f"i{w}"] for w in (widths if source.bits < to.bits else reversed(widths))]


def machine_function(fn: str, dtype: DType, lanes: int, name: str) -> str | None:
    """A function of whole vectors for `fma`, `sqrt` and rounding, or None when there is no builtin.

    The last branch of the `#if` is the loop over lanes.
    """
    x86 = _x86(fn, dtype, lanes)
    if x86 is None:
        return None
    guard, call = x86
    t, letters = c_type(dtype, lanes), "abc"[: 3 if fn == "fma" else 1]
    parameters = ", ".join(f"{t} {p}" for p in letters)
    lanes_of = ", ".join(f"{p}[l]" for p in letters)
    return "\n".join((
        f"static inline {t} {name}({parameters}) {{",
        f"#if defined(__clang__) && __has_builtin(__builtin_elementwise_{_CLANG[fn]})",
        f"  return __builtin_elementwise_{_CLANG[fn]}({', '.join(letters)});",
        f"#elif {guard}",
        f"  return ({t}){call};",
        "#else",
        f"  {t} r; for (int l = 0; l < {lanes}; l++) r[l] = {fn}_{dtype.name}({lanes_of}); return r;",
        "#endif",
        "}",
    ))  # fmt: skip


def choosing(op: str, dtype: DType, lanes: int, name: str, body: str) -> str:
    """A function for `min` or `max`: `body`, or for gcc x86's instruction, which gives `a` where one is NaN, too."""
    t, size = c_type(dtype, lanes), lanes * dtype.bits
    head = f"static inline {t} {name}({t} a, {t} b)"
    if not dtype.is_float or size not in (128, 256, 512):
        return f"{head} {body}"
    call = f"__builtin_ia32_{op}p{'s' if dtype.bits == 32 else 'd'}{'' if size == 128 else size}"
    if size == 512:
        call += f"_mask(b, a, b, (unsigned {'short' if lanes == 16 else 'char'})-1, 4)"
    else:
        call += "(b, a)"
    guard = {128: "__SSE2__", 256: "__AVX__", 512: "__AVX512F__"}[size]
    return "\n".join((
        f"{head} {{", f"#if defined({guard}) && !defined(__clang__)", f"  return ({t}){call};", "#else",
        f"  {body[1:-1].strip()}", "#endif", "}",
    ))  # fmt: skip


def _x86(fn: str, dtype: DType, lanes: int) -> tuple[str, str] | None:
    """Preprocessor condition and call of the x86 builtin for a whole register."""
    size = lanes * dtype.bits
    if dtype.name not in ("f32", "f64") or size not in (128, 256, 512):
        return None
    kind, width = ("ps" if dtype.name == "f32" else "pd"), ("" if size == 128 else str(size))
    if size == 512:
        every = f"(unsigned {'short' if lanes == 16 else 'char'})-1"
        if fn == "fma":
            return "defined(__AVX512F__)", f"__builtin_ia32_vfmadd{kind}512_mask(a, b, c, {every}, 4)"
        if fn == "sqrt":
            return "defined(__AVX512F__)", f"__builtin_ia32_sqrt{kind}512_mask(a, a, {every}, 4)"
        return "defined(__AVX512F__)", f"__builtin_ia32_rndscale{kind}_mask(a, {_ROUND_MODE[fn]}, a, {every}, 4)"
    if fn == "fma":
        return "defined(__FMA__)", f"__builtin_ia32_vfmadd{kind}{width}(a, b, c)"
    if fn == "sqrt":
        return f"defined({'__SSE2__' if size == 128 else '__AVX__'})", f"__builtin_ia32_sqrt{kind}{width}(a)"
    guard = f"defined({'__SSE4_1__' if size == 128 else '__AVX__'})"
    return guard, f"__builtin_ia32_round{kind}{width}(a, {_ROUND_MODE[fn]})"


def call_text(fn: str, dtype: DType, lanes: int, args: list[str], vector: Callable[[DType, int], str]) -> str | None:
    """`abs` and `isnan`-like calls as plain vector operations, or None."""
    m = bits_of(dtype, lanes, vector)
    t = vector(dtype, lanes)
    if fn == "abs" and dtype.is_float:
        return f"(({t})(({m}){args[0]} & {_largest(dtype)}))"
    if fn == "abs" and dtype.kind == "uint":
        return args[0]
    return None


def _largest(dtype: DType) -> str:
    """The largest signed integer as wide as `dtype`: everything but the sign bit."""
    return f"({SCALAR[f'i{dtype.bits}']}){(1 << (dtype.bits - 1)) - 1}{'LL' if dtype.bits == 64 else ''}"


def shift_text(op: str, a: str, amount: int, dtype: DType, lanes: int, vector: Callable[[DType, int], str]) -> str:
    """A shift by a constant: 0 (or the sign) from the width on, as NumPy."""
    t = vector(dtype, lanes)
    u = vector(BY_NAME[f"u{dtype.bits}"], lanes)
    if 0 <= amount < dtype.bits:
        return f"(({t})(({u}){a} << {amount}))" if op == "<<" else f"({a} >> {amount})"
    if op == ">>" and dtype.kind == "int":
        return f"({a} >> {dtype.bits - 1})"
    return f"({a} & ({SCALAR[dtype.name]})0)"
