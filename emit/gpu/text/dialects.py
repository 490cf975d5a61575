"""CUDA C and OpenCL C as two dialects of one language: what differs, as data.

Both texts name element types as `<stdint.h>` does. f16 and bf16 are their bits in a `uint16_t` and
compute in float, so no header of a vendor is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from polyc.emit.c.types import Dialect, helper_functions
from polyc.emit.gpu.text import tensor_texts
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class GpuDialect:
    """A language of kernels. `spaces` qualifies pointers by a buffer's space; `block` and `thread`
    are the indices by axis; `{}` in `aligned` takes bytes. `offsets`: hosts pass arrays as a buffer and
    the number of an element in it. `begin_copy` and `wait_for_copies`: functions for asynchronous copies of
    `SIZE` bytes, with the instruction's `CACHE` policy; None where there are none; `end_copies` ends a group of them,
    and `wait_for_groups` waits for all but the last `PENDING`. `matrix_loads`, `multiply` and `warp_product` (both by
    element type) likewise: instructions of tensor cores, and `ROWS` x `COLUMNS` products of 16 x 16 by 16 x 8 elements
    made of them. `exchange`: the value `{}` of the thread of the warp whose number differs in the bit `{}`."""

    name: str
    preamble: tuple[str, ...]
    helpers: Mapping[str, str]
    inline: str
    restrict: str
    offsets: bool
    spaces: Mapping[str, str]
    shared: str
    aligned: str
    barrier: str
    block: tuple[str, str, str]
    thread: tuple[str, str, str]
    long_suffix: str
    infinity: Mapping[str, str]
    nan: Mapping[str, str]
    begin_copy: str | None = None
    wait_for_copies: str | None = None
    wait_for_groups: str | None = None
    end_copies: str | None = None
    matrix_loads: str = ""
    multiply: Mapping[str, str] = field(default_factory=dict)
    warp_product: Mapping[str, str] = field(default_factory=dict)
    exchange: str | None = None


def _cuda_math(function: str, name: str) -> str:
    return function + ("f" if name == "f32" and function != "isinf" else "")


def _cuda_bits(to: str, source: str) -> str:
    call = {"f32": "__int_as_float", "i32": "__float_as_int", "f64": "__longlong_as_double",
            "i64": "__double_as_longlong"}[to]  # fmt: skip
    return f"return {call}(a);"


def _opencl_bits(to: str, source: str) -> str:
    call = {"f32": "as_float", "i32": "as_int", "f64": "as_double", "i64": "as_long"}[to]
    return f"return {call}(a);"


_CUDA_INLINE = tensor_texts.INLINE

# The conversions are instructions (cvt, rounding to nearest even); elsewhere (the header that runs
# CUDA text on a CPU) the compiler's own 16-bit type does them.
_CUDA_HALVES = {
    "f16_to_f32": f"""{_CUDA_INLINE} float f16_to_f32(uint16_t a) {{
#ifdef __CUDA_ARCH__
  float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(a)); return r;
#else
  _Float16 h; __builtin_memcpy(&h, &a, 2); return (float)h;
#endif
}}""",
    "f32_to_f16": f"""{_CUDA_INLINE} uint16_t f32_to_f16(float a) {{
#ifdef __CUDA_ARCH__
  uint16_t r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(a)); return r;
#else
  _Float16 h = (_Float16)a; uint16_t r; __builtin_memcpy(&r, &h, 2); return r;
#endif
}}""",
    "bf16_to_f32": f"{_CUDA_INLINE} float bf16_to_f32(uint16_t a) "
    "{ return __int_as_float((int)((uint32_t)a << 16)); }",
    "f32_to_bf16": f"{_CUDA_INLINE} uint16_t f32_to_bf16(float a) {{ uint32_t u = (uint32_t)__float_as_int(a); "
    "if (a != a) return (uint16_t)((u >> 16) | 0x40); return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16); }",
}

# In integers: `vload_half` of a variable reads it through a pointer of another type, and compilers (PoCL's) then take
# the variable for uninitialised.
_OPENCL_HALVES = {
    "f16_to_f32": """static inline float f16_to_f32(uint16_t a) {
  uint32_t sign = (uint32_t)(a & 0x8000) << 16, e = (a >> 10) & 31, m = a & 1023;
  if (e == 0) return as_float(sign | as_uint((float)m * 0x1p-24f));
  return as_float(sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13);
}""",
    "f32_to_f16": """static inline uint16_t f32_to_f16(float a) {
  uint32_t u = as_uint(a), sign = (u >> 16) & 0x8000u, x = u & 0x7fffffffu;
  if (x > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((x >> 13) & 0x3ffu));
  if (x >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
  if (x >= 0x38800000u) return (uint16_t)(sign + ((x - 0x38000000u + 0xfffu + ((x >> 13) & 1u)) >> 13));
  if (x < 0x33000000u) return (uint16_t)sign;
  uint32_t shift = 126 - (x >> 23), m = (x & 0x7fffffu) | 0x800000u;
  return (uint16_t)(sign + ((m + (1u << (shift - 1)) - 1u + ((m >> shift) & 1u)) >> shift));
}""",
    "bf16_to_f32": "static inline float bf16_to_f32(uint16_t a) { return as_float((uint32_t)a << 16); }",
    "f32_to_bf16": "static inline uint16_t f32_to_bf16(float a) { uint32_t u = as_uint(a); "
    "if (a != a) return (uint16_t)((u >> 16) | 0x40); return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16); }",
}

CUDA = GpuDialect(
    name="cuda",
    preamble=(
        "#ifdef __CUDACC_RTC__",
        "typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t;",
        "typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t;",
        "typedef long long int64_t; typedef unsigned long long uint64_t;",
        "#else",
        "#include <stdint.h>",
        "#endif",
    ),
    helpers=helper_functions(Dialect(_CUDA_INLINE, _cuda_math, _cuda_bits)) | _CUDA_HALVES,
    inline=_CUDA_INLINE,
    restrict="__restrict__",
    offsets=False,
    spaces={"param": "", "heap": "", "shared": "", "register": "", "local": ""},
    shared="static __shared__ ",
    aligned="__align__({})",
    barrier="__syncthreads()",
    block=("blockIdx.x", "blockIdx.y", "blockIdx.z"),
    thread=("threadIdx.x", "threadIdx.y", "threadIdx.z"),
    long_suffix="LL",
    infinity={"f32": "__int_as_float(0x7f800000)", "f64": "__longlong_as_double(0x7ff0000000000000LL)"},
    nan={"f32": "__int_as_float(0x7fc00000)", "f64": "__longlong_as_double(0x7ff8000000000000LL)"},
    begin_copy=f"""{_CUDA_INLINE} void begin_copy_SIZE(void *to, const void *from) {{
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.CACHE.shared.global [%0], [%1], SIZE;"
               :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from) : "memory");
#else
  polyc_begin_copy(to, from, SIZE);
#endif
}}""",
    matrix_loads=tensor_texts.LOADS,
    multiply=tensor_texts.MULTIPLY,
    warp_product=tensor_texts.PRODUCT,
    exchange="__shfl_xor_sync(0xffffffffu, {}, {})",
    wait_for_copies=f"""{_CUDA_INLINE} void wait_for_copies() {{
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  polyc_wait_for_copies();
#endif
}}""",
    wait_for_groups=f"""{_CUDA_INLINE} void wait_for_copies_but_PENDING() {{
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group PENDING;" ::: "memory");
#else
  polyc_wait_for_copies(PENDING);
#endif
}}""",
    end_copies=f"""{_CUDA_INLINE} void end_copies() {{
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  polyc_end_copies();
#endif
}}""",
)

OPENCL = GpuDialect(
    name="opencl",
    preamble=(
        "#ifdef cl_khr_fp64",
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
        "#endif",
        "#pragma OPENCL FP_CONTRACT OFF",
        "typedef char int8_t; typedef uchar uint8_t; typedef short int16_t; typedef ushort uint16_t;",
        "typedef int int32_t; typedef uint uint32_t; typedef long int64_t; typedef ulong uint64_t;",
    ),
    helpers=helper_functions(Dialect("static inline", lambda f, name: f, _opencl_bits)) | _OPENCL_HALVES,
    inline="static inline",
    restrict="restrict",
    offsets=True,
    spaces={"param": "__global ", "heap": "__global ", "shared": "__local ", "register": "", "local": ""},
    shared="__local ",
    aligned="__attribute__((aligned({})))",
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)",
    block=("get_group_id(0)", "get_group_id(1)", "get_group_id(2)"),
    thread=("get_local_id(0)", "get_local_id(1)", "get_local_id(2)"),
    long_suffix="L",
    infinity={"f32": "as_float(0x7f800000)", "f64": "as_double(0x7ff0000000000000L)"},
    nan={"f32": "as_float(0x7fc00000)", "f64": "as_double(0x7ff8000000000000L)"},
)

BY_NAME = {d.name: d for d in (CUDA, OPENCL)}
