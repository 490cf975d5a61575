"""The few functions that portable kernels call, as one C99 header.

With `POLYC_NO_LIBM` defined nothing is taken from `<math.h>` but its macros: rounding, square roots
and remainders are computed with arithmetic only, so that a program links without `-lm`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from polyc.emit.c.types import helper_functions
from polyc.poly.errors import BuildError

_HALVES = {
    "bf16_to_f32": """static inline float bf16_to_f32(uint16_t a) {
  uint32_t u = (uint32_t)a << 16; float r; memcpy(&r, &u, sizeof r); return r;
}""",
    "f32_to_bf16": """static inline uint16_t f32_to_bf16(float a) {
  uint32_t u; memcpy(&u, &a, sizeof u);
  if (a != a) return (uint16_t)((u >> 16) | 0x40u);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}""",
    "f16_to_f32": """static inline float f16_to_f32(uint16_t a) {
  uint32_t sign = (uint32_t)(a & 0x8000u) << 16, e = (a >> 10) & 31u, m = a & 1023u, u; float r;
  if (e == 0) { r = (float)m * 0x1p-24f; memcpy(&u, &r, sizeof u); u |= sign; }
  else u = sign | (e == 31 ? 0x7f800000u : (e + 112u) << 23) | m << 13;
  memcpy(&r, &u, sizeof r); return r;
}""",
    "f32_to_f16": """static inline uint16_t f32_to_f16(float a) {
  uint32_t u, sign, x, shift, m; memcpy(&u, &a, sizeof u);
  sign = (u >> 16) & 0x8000u; x = u & 0x7fffffffu;
  if (x > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((x >> 13) & 0x3ffu));
  if (x >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
  if (x >= 0x38800000u) return (uint16_t)(sign + ((x - 0x38000000u + 0xfffu + ((x >> 13) & 1u)) >> 13));
  if (x < 0x33000000u) return (uint16_t)sign;
  shift = 126u - (x >> 23); m = (x & 0x7fffffu) | 0x800000u;
  return (uint16_t)(sign + ((m + (1u << (shift - 1)) - 1u + ((m >> shift) & 1u)) >> shift));
}""",
}

# What the functions above and below take from <math.h>, or do themselves.
_LIBM = """#ifndef POLYC_NO_LIBM
#define polyc_sqrt$F sqrt$F
#define polyc_floor$F floor$F
#define polyc_ceil$F ceil$F
#define polyc_rint$F rint$F
#define polyc_trunc$F trunc$F
#define polyc_fabs$F fabs$F
#define polyc_fmod$F fmod$F
#define polyc_copysign$F copysign$F
#else
static inline $T polyc_copysign$F($T a, $T b) {
  $U x, y; memcpy(&x, &a, sizeof x); memcpy(&y, &b, sizeof y);
  x = (x & ~($U)0 >> 1) | (y & ~(~($U)0 >> 1)); memcpy(&a, &x, sizeof a); return a;
}
static inline $T polyc_fabs$F($T a) { return polyc_copysign$F(a, 1); }
static inline $T polyc_trunc$F($T a) {
  if (!(a < $W && a > -$W)) return a; /* an integer already, or no number */
  return polyc_copysign$F(($T)($I)a, a);
}
static inline $T polyc_floor$F($T a) { $T r = polyc_trunc$F(a); return r > a ? r - 1 : r; }
static inline $T polyc_ceil$F($T a) { $T r = polyc_trunc$F(a); return r < a ? polyc_copysign$F(r + 1, a) : r; }
static inline $T polyc_rint$F($T a) { /* half to even */
  $T r = polyc_trunc$F(a), h = polyc_fabs$F(a - r);
  if (h < ($T)0.5 || !(h == h)) return r;
  if (h == ($T)0.5 && ($I)r % 2 == 0) return r;
  return r + (a < 0 ? -1 : 1);
}
static inline $T polyc_sqrt$F($T a) { /* Newton's iteration in double; double is right to one ulp */
  double x = a, y, s = 1; uint64_t u; int k;
  if (!(a > 0) || a - a != 0) return a < 0 ? ($T)NAN : a;
  if (x < 0x1p-960) { x *= 0x1p+200; s = 0x1p-100; }
  memcpy(&u, &x, sizeof u); u = (u >> 1) + ((uint64_t)1023 << 51); memcpy(&y, &u, sizeof y);
  for (k = 0; k < 5; k++) y = 0.5 * (y + x / y);
  return ($T)(y * s);
}
static inline $T polyc_fmod$F($T a, $T b) { /* long division: each difference is exact */
  double x = a, y = b, t;
  x = x < 0 ? -x : x; y = y < 0 ? -y : y;
  if (!(y > 0) || !(x - x == 0)) return ($T)NAN;
  while (x >= y) { for (t = y; t <= 0.5 * x;) t *= 2; x -= t; }
  return polyc_copysign$F(($T)x, a);
}
#endif
"""

_FMA = {
    "f32": """#ifdef FP_FAST_FMAF
#define polyc_fmaf fmaf
#else /* the product of two floats is exact in double */
static inline float polyc_fmaf(float a, float b, float c) { return (float)((double)a * b + c); }
#endif
""",
    "f64": """#if !defined(POLYC_NO_LIBM) || defined(FP_FAST_FMA)
#define polyc_fma fma
#else /* the product's rounding error by Dekker's splitting, the sum's by Knuth's: nearly exact */
static inline double polyc_fma(double a, double b, double c) {
  double p = a * b, x = a * 134217729.0, y = b * 134217729.0, s = p + c, z = s - p, e;
  x = x - (x - a); y = y - (y - b);
  e = ((x * y - p) + x * (b - y) + (a - x) * y) + (a - x) * (b - y);
  e += (p - (s - z)) + (c - z);
  return e - e == 0 ? s + e : s;
}
#endif
""",
}

_TYPES = {
    "f32": {"F": "f", "T": "float", "U": "uint32_t", "I": "int32_t", "W": "0x1p+23f"},
    "f64": {"F": "", "T": "double", "U": "uint64_t", "I": "int64_t", "W": "0x1p+52"},
}


def header(names: Iterable[str], guard: str) -> str:
    """The header with the helpers `names` and what they need.

    Raises:
        BuildError: there is no such helper.
    """
    wanted = sorted(set(names))
    table = _portable() | _HALVES
    missing = [n for n in wanted if n not in table]
    if missing:
        raise BuildError(f"portable C has no implementation of {missing[0]}; expand intrinsics first")
    texts = [table[n] for n in wanted]
    parts = [_HEAD.replace("$GUARD", guard)]
    for name, words in _TYPES.items():
        used = {call for text in texts for call in re.findall(r"polyc_(\w+)\(", text)}
        mine = {call for call in used if call.endswith("f") == (name == "f32")}
        if mine - {"fma" + words["F"]}:
            parts.append(_words(_LIBM, words))
        if "fma" + words["F"] in mine:
            parts.append(_FMA[name])
    return "\n".join([*parts, *texts, "#endif", ""])


def _words(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\$([FTUIW])", lambda m: words[m[1]], text)


def _portable() -> dict[str, str]:
    """The scalar helpers of the C back end without a compiler's builtins."""
    out = {}
    for name, text in helper_functions().items():
        text = text.replace("__builtin_isinf(a) != 0", "a == a && a - a != 0").replace("__builtin_memcpy", "memcpy")
        out[name] = text.replace("__builtin_", "polyc_")
    return out


_HEAD = """#ifndef $GUARD
#define $GUARD
/* Arithmetic of the kernels. -DPOLYC_NO_LIBM: no function of <math.h> is called. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8 /* gcc -O3 finds no vectors in what it wrote out */
#define POLYC_KEEP _Pragma("GCC unroll 1")
#else
#define POLYC_KEEP
#endif
"""
