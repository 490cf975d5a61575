"""CUDA C of tensor cores: the instructions, and a warp's product made of them.

Each function holds the instruction for a GPU, and for the header that runs CUDA text on a CPU (`shim.h`) the call that
does what PTX says of it. `NAME`, `TYPE`, `ROWS` and `COLUMNS` are filled in by the emitter.
"""

from __future__ import annotations

from collections.abc import Mapping

INLINE = "static __device__ __forceinline__"

LOADS = f"""{INLINE} void load_matrices(uint32_t *r, const uint16_t *row) {{
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
#else
  polyc_load_matrices(r, row, 0);
#endif
}}
{INLINE} void load_transposed(uint32_t *r, const uint16_t *row) {{
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{%0, %1, %2, %3}}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
#else
  polyc_load_matrices(r, row, 1);
#endif
}}"""

_MULTIPLY = f"""{INLINE} void multiply_TYPE(float *c, const uint32_t *a, const uint32_t *b) {{
#ifdef __CUDA_ARCH__
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
               "{{%8, %9}}, {{%0, %1, %2, %3}};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  polyc_multiply(c, a, b, [](uint16_t v) {{ return TYPE_to_f32(v); }});
#endif
}}"""

_MULTIPLY_TF32 = f"""{INLINE} uint32_t to_tf32(float a) {{
#ifdef __CUDA_ARCH__
  uint32_t r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(a)); return r;
#else
  return polyc_to_tf32(a);
#endif
}}
{INLINE} void multiply_tf32(float *c, const uint32_t *a, const uint32_t *b) {{
#ifdef __CUDA_ARCH__
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
               "{{%8, %9}}, {{%0, %1, %2, %3}};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  polyc_multiply_tf32(c, a, b);
#endif
}}"""

# `left` and `right` point to the thread's own first elements; for loading, a thread names a row for the whole warp:
# row lane % 16 of 8 elements, the second 16 lanes those 8 further on.
_PRODUCT = f"""{INLINE} void NAME(float *acc, const uint16_t *left, int left_row,
    const uint16_t *right, int right_row, int x, int y) {{
  int lane = x + 4 * y;
  uint32_t a[4], b[COLUMNS * 2];
  left += (lane % 16 - y) * left_row + lane / 16 * 8;
  right += lane % 16 * right_row - 2 * x + lane / 16 * 8;
  #pragma unroll
  for (int n = 0; n < COLUMNS; n += 2) load_transposed(b + 2 * n, right + 8 * n);
  #pragma unroll
  for (int m = 0; m < ROWS; m++) {{
    load_matrices(a, left + 16 * m * left_row);
    #pragma unroll
    for (int n = 0; n < COLUMNS; n++) multiply_TYPE(acc + (m * COLUMNS + n) * 4, a, b + 2 * n);
  }}
}}"""

# A row of a matrix is 16 bytes, here 4 elements. Elements of 4 bytes are not transposed while loading: a thread loads
# its own of the right panel. Both are rounded after loading: asynchronous copies brought them as they were.
_PRODUCT_TF32 = f"""{INLINE} void NAME(float *acc, const float *left, int left_row,
    const float *right, int right_row, int x, int y) {{
  int lane = x + 4 * y;
  uint32_t a[4], b[COLUMNS * 2];
  left += (lane % 16 - y) * left_row + lane / 16 * 4;
  right += x * right_row + y - 2 * x;
  #pragma unroll
  for (int k = 0; k < 16; k += 8) {{
    #pragma unroll
    for (int n = 0; n < COLUMNS * 2; n++) b[n] = to_tf32(right[(k + n % 2 * 4) * right_row + n / 2 * 8]);
    #pragma unroll
    for (int m = 0; m < ROWS; m++) {{
      load_matrices(a, (const uint16_t *)(left + 16 * m * left_row + k));
      #pragma unroll
      for (int h = 0; h < 4; h++) a[h] = to_tf32(__int_as_float((int)a[h]));
      #pragma unroll
      for (int n = 0; n < COLUMNS; n++) multiply_tf32(acc + (m * COLUMNS + n) * 4, a, b + 2 * n);
    }}
  }}
}}"""

MULTIPLY: Mapping[str, str] = {"f16": _MULTIPLY, "bf16": _MULTIPLY, "f32": _MULTIPLY_TF32}
PRODUCT: Mapping[str, str] = {"f16": _PRODUCT, "bf16": _PRODUCT, "f32": _PRODUCT_TF32}
