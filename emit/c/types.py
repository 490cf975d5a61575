"""C names of element and vector types, and the small inline functions that give C our semantics.

GCC and clang vector extensions; a boolean vector is a vector of `int8_t` holding 0 or -1.
f16 is `_Float16`; bf16 is its bits in a `uint16_t`; both compute in `float`.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.poly.dtypes import DType
from polyc.poly.records import dataclass

SCALAR = {
    "bool_": "uint8_t",
    "i8": "int8_t",
    "u8": "uint8_t",
    "i16": "int16_t",
    "u16": "uint16_t",
    "i32": "int32_t",
    "u32": "uint32_t",
    "i64": "int64_t",
    "u64": "uint64_t",
    "f16": "_Float16",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
}
MASK_BITS = {8: "int8_t", 16: "int16_t", 32: "int32_t", 64: "int64_t"}


def c_type(dtype: DType, lanes: int = 1) -> str:
    """The C type of a value (`v8_f32` for a vector)."""
    return SCALAR[dtype.name] if lanes == 1 else f"v{lanes}_{dtype.name}"


def typedefs(vectors: set[tuple[DType, int]]) -> list[str]:
    """Vector typedefs, aligned and `_u` (unaligned, for memory), sorted."""
    lines = []
    for dtype, lanes in sorted(vectors, key=lambda v: (v[0].name, v[1])):
        element = "int8_t" if dtype.kind == "bool" else SCALAR[dtype.name]
        size = lanes * dtype.bytes
        name = c_type(dtype, lanes)
        lines.append(f"typedef {element} {name} __attribute__((vector_size({size})));")
        lines.append(
            f"typedef {element} {name}_u __attribute__((vector_size({size}), aligned({dtype.bytes}), may_alias));"
        )
    return lines


@dataclass(frozen=True)
class Dialect:
    """How a language of the C family spells what our helper functions are made of.

    `inline` starts a helper's definition; `math` names the function for `sqrt`, `floor`, `ceil`,
    `rint`, `trunc`, `fabs`, `fma`, `fmod`, `copysign`, `isinf` of an element type; `reinterpret` gives
    the statements that return the bits of `a` (arguments: the target's and the source's type).
    """

    inline: str
    math: Callable[[str, str], str]
    reinterpret: Callable[[str, str], str]


def _builtin(function: str, name: str) -> str:
    return f"__builtin_{function}{'f' if name == 'f32' and function != 'isinf' else ''}"


def _copied(to: str, source: str) -> str:
    return f"{SCALAR[to]} r; __builtin_memcpy(&r, &a, sizeof r); return r;"


GNU = Dialect("static inline", _builtin, _copied)


def _float_math(d: Dialect, name: str) -> dict[str, str]:
    t = SCALAR[name]
    one = {f: d.math(b, name) for f, b in _BUILTINS.items()}
    fmod, copysign, floor = (d.math(f, name) for f in ("fmod", "copysign", "floor"))
    lines = {f"{f}_{name}": f"{d.inline} {t} {f}_{name}({t} a) {{ return {call}(a); }}" for f, call in one.items()}
    lines[f"fma_{name}"] = (
        f"{d.inline} {t} fma_{name}({t} a, {t} b, {t} c) {{ return {d.math('fma', name)}(a, b, c); }}"
    )
    lines[f"isnan_{name}"] = f"{d.inline} uint8_t isnan_{name}({t} a) {{ return a != a; }}"
    lines[f"isinf_{name}"] = f"{d.inline} uint8_t isinf_{name}({t} a) {{ return {d.math('isinf', name)}(a) != 0; }}"
    lines[f"mod_{name}"] = (
        f"{d.inline} {t} mod_{name}({t} a, {t} b) {{ {t} r = {fmod}(a, b); "
        f"if (r != 0) {{ if ((b < 0) != (r < 0)) r += b; }} "
        f"else r = {copysign}(({t})0, b); return r; }}"
    )
    lines[f"floordiv_{name}"] = (
        f"{d.inline} {t} floordiv_{name}({t} a, {t} b) {{ if (b == 0) return a / b; "
        f"{t} m = {fmod}(a, b), d = (a - m) / b; "
        f"if (m != 0 && ((b < 0) != (m < 0))) d -= 1; "
        f"if (d == 0) return {copysign}(({t})0, a / b); "
        f"{t} f = {floor}(d); if (d - f > ({t})0.5) f += 1; return f; }}"
    )
    return lines


_BUILTINS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc", "abs": "fabs"}


def _integer_math(d: Dialect, name: str, bits: int, signed: bool) -> dict[str, str]:
    t = SCALAR[name]
    u = "u" + t if signed else t
    lines = {}
    if signed:
        lines[f"floordiv_{name}"] = (
            f"{d.inline} {t} floordiv_{name}({t} a, {t} b) {{ if (b == 0) return 0; "
            f"if (b == -1) return ({t})(0 - ({u})a); {t} q = a / b; return q - ((a % b != 0) & ((a ^ b) < 0)); }}"
        )
        lines[f"mod_{name}"] = (
            f"{d.inline} {t} mod_{name}({t} a, {t} b) {{ if (b == 0 || b == -1) return 0; "
            f"{t} r = a % b; return r + ((r != 0 && ((r ^ b) < 0)) ? b : 0); }}"
        )
        lines[f"abs_{name}"] = f"{d.inline} {t} abs_{name}({t} a) {{ return a < 0 ? ({t})(0 - ({u})a) : a; }}"
    else:
        lines[f"floordiv_{name}"] = f"{d.inline} {t} floordiv_{name}({t} a, {t} b) {{ return b ? a / b : 0; }}"
        lines[f"mod_{name}"] = f"{d.inline} {t} mod_{name}({t} a, {t} b) {{ return b ? a % b : 0; }}"
        lines[f"abs_{name}"] = f"{d.inline} {t} abs_{name}({t} a) {{ return a; }}"
    lines[f"shl_{name}"] = (
        f"{d.inline} {t} shl_{name}({t} a, {t} b) {{ return ({u})b < {bits} ? ({t})(({u})a << b) : 0; }}"
    )
    sign = f"a < 0 ? ({t})-1 : 0" if signed else "0"
    lines[f"shr_{name}"] = (
        f"{d.inline} {t} shr_{name}({t} a, {t} b) {{ return ({u})b < {bits} ? ({t})(a >> b) : ({sign}); }}"
    )
    return lines


def _common(d: Dialect, name: str) -> dict[str, str]:
    t = SCALAR[name]
    return {
        f"min_{name}": f"{d.inline} {t} min_{name}({t} a, {t} b) {{ return b < a ? b : a; }}",
        f"max_{name}": f"{d.inline} {t} max_{name}({t} a, {t} b) {{ return b > a ? b : a; }}",
    }


def _bitcast(d: Dialect, to: str, source: str) -> str:
    t, s = SCALAR[to], SCALAR[source]
    return f"{d.inline} {t} bitcast_{to}({s} a) {{ {d.reinterpret(to, source)} }}"


def helper_functions(d: Dialect = GNU) -> dict[str, str]:
    """Name -> definition of every scalar helper; printers emit those that are used."""
    out: dict[str, str] = {}
    for name in ("f32", "f64"):
        out |= _float_math(d, name) | _common(d, name)
    for bits in (8, 16, 32, 64):
        out |= _integer_math(d, f"i{bits}", bits, True) | _integer_math(d, f"u{bits}", bits, False)
        out |= _common(d, f"i{bits}") | _common(d, f"u{bits}")
    for a, b in (("f32", "i32"), ("i32", "f32"), ("f64", "i64"), ("i64", "f64")):
        out[f"bitcast_{a}"] = _bitcast(d, a, b)
    t, half, byte = SCALAR["i32"], SCALAR["i16"], SCALAR["i8"]
    out["dot_pairs_i32"] = (
        f"{d.inline} {t} dot_pairs_i32({t} a, {t} b) {{ return ({t})((u{t})(({t})({half})a * ({t})({half})b) + "
        f"(u{t})((a >> 16) * (b >> 16))); }}"
    )
    bytes_ = " + ".join(f"(u{t})((a >> {s} & 255) * ({t})({byte})(b >> {s}))" for s in (0, 8, 16, 24))
    out["dot_bytes_i32"] = f"{d.inline} {t} dot_bytes_i32({t} a, {t} b) {{ return ({t})({bytes_}); }}"
    out["dot_bytes_add_i32"] = (
        f"{d.inline} {t} dot_bytes_add_i32({t} a, {t} b, {t} c) {{ return ({t})((u{t})c + {bytes_}); }}"
    )
    out["widen_pairs_i32"] = (
        f"{d.inline} {t} widen_pairs_i32({t} a) {{ return ({t})((u{t})(u{half})({half})({byte})a | "
        f"(u{t})({half})({byte})(a >> 8) << 16); }}"
    )
    out["bf16_to_f32"] = (
        "static inline float bf16_to_f32(uint16_t a) { uint32_t u = (uint32_t)a << 16; float r; "
        "__builtin_memcpy(&r, &u, 4); return r; }"
    )
    out["f32_to_bf16"] = (
        "static inline uint16_t f32_to_bf16(float a) { uint32_t u; __builtin_memcpy(&u, &a, 4); "
        "if (a != a) return (uint16_t)((u >> 16) | 0x40); "
        "return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16); }"
    )
    return out
