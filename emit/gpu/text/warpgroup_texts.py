"""CUDA C of `wgmma`, the tensor cores of sm_90a: 128 threads multiply matrices that lie in shared memory.

As in `tensor_texts`, what is not for a GPU is for the header that runs CUDA text on a CPU (`shim.h`).
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.emit.gpu.text.tensor_texts import INLINE

FEATURE = "wgmma"  # of a target

# Descriptor of matrices of 8 rows of 16 bytes, without swizzle, contiguous along the reduction: the address, the bytes
# to the next one along the reduction, and to the next eight rows, all in units of 16 bytes.
_DESCRIPTOR = f"""{INLINE} uint64_t matrix_descriptor(const uint16_t *at, int matrices) {{
  uint64_t address = (uint64_t)__cvta_generic_to_shared(at) & 0x3ffff;
  return address >> 4 | (uint64_t)(128 >> 4) << 16 | (uint64_t)(matrices * 128 >> 4) << 32;
}}"""

# What threads wrote to shared memory becomes visible to the unit that reads it; then all warps of the group come.
_BEGIN = f"""{INLINE} void begin_warpgroup_products() {{
#ifdef __CUDA_ARCH__
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
#ifdef __CUDA_ARCH__
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}}"""


def warpgroup_texts(element: str, columns: int, steps: int) -> Mapping[str, str]:
    """The functions of one product, by name: 64 x (16 `steps`) by (16 `steps`) x `columns` elements of f16 or bf16.

    The last one computes it for a thread x, y, z of 4 x 8 x 4; its pointers are to the thread's own first elements,
    with the number of matrices along the reduction in the panels.
    """
    multiply, end = f"warpgroup_multiply_{element}_{columns}", f"end_warpgroup_products_{columns}"
    sums = columns // 2
    registers = ", ".join(f"%{k}" for k in range(sums))
    operands = ", ".join(f'"+f"(c[{k}])' for k in range(sums))
    name = f"warpgroup_product_{element}_{columns}x{steps}"
    return {
        "matrix_descriptor": _DESCRIPTOR,
        "begin_warpgroup_products": _BEGIN,
        end: f"""{INLINE} void {end}(float *c) {{
#ifdef __CUDA_ARCH__
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {operands} :: "memory");
#endif
}}""",
        multiply: f"""{INLINE} void {multiply}(float *c, uint64_t a, uint64_t b) {{
#ifdef __CUDA_ARCH__
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, 1, 0; "
               "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{element}.{element} "
               "{{{registers}}}, %{sums}, %{sums + 1}, p, 1, 1, 0, 0; }}"
               : {operands} : "l"(a), "l"(b));
#else
  polyc_multiply_warpgroup(c, a, b, {columns}, [](uint16_t v) {{ return {element}_to_f32(v); }});
#endif
}}""",
        name: f"""{INLINE} void {name}(float *acc, const uint16_t *left, int left_matrices,
    const uint16_t *right, int right_matrices, int x, int y, int z) {{
  uint64_t a = matrix_descriptor(left - 2 * z * left_matrices * 64 - 8 * y, left_matrices);
  uint64_t b = matrix_descriptor(right - 16 * x, right_matrices);
  begin_warpgroup_products();
  #pragma unroll
  for (int k = 0; k < {steps}; k++) {multiply}(acc, a + k * (256 >> 4), b + k * (256 >> 4));
  {end}(acc);
}}""",
    }
