"""What a schedule or an emitter needs to know of a machine: data, no code."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from polyc.poly.records import dataclass

FLOATS = "f16,bf16,f32,f64"
"""Types of real numbers that a target computes in, where its file says nothing: some by conversion to f32."""

ALL_PASSES = "general,specific"
"""Graph passes that run for a target, where its file says nothing: for all hardware, and those that ask for it."""

MASKED_STORES = 512
"""Bits of the vectors that are stored under masks as fast as whole (AVX-512)."""


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU. Sizes in bytes, widths in bits; `fma_units` = vector FMAs started per cycle.

    `triple`, `cpu` and `features` are LLVM's names (`features` as `+avx2,+fma,...`). `l1_ways`: lines that a set of
    L1 holds; `page`: bytes of memory that one entry of the TLB stands for, `tlb_pages`: entries of its first level. A
    target file may leave these three out: what stands here is right for Haswell to Skylake and Zen to Zen 3.
    `floats` are the types of real numbers that it computes in, with commas; a file may leave them out, too.
    `matrix`: the intrinsics whose sums it computes for whole matrices at once, with commas (`dot_bytes,dot_bf16`: AMX);
    `matrix_cycles`: the cycles of one such instruction on whole registers (`MATRIX_ROWS` rows). Without: none.
    `passes`: the graph passes that run for it, with commas: `general`, `specific`, and names of further ones.
    `max_concat_inputs`, `max_sum_inputs`: operands that one operator takes at most (0: any number): Concat; Sum, Max,
    Min and Mean.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    l1: int
    l2: int
    l3: int
    line: int
    fma_units: int
    threads: int
    isa: str = "x86-64"
    l1_ways: int = 8
    page: int = 4096
    tlb_pages: int = 64
    matrix: str = ""
    matrix_cycles: int = 16
    floats: str = FLOATS
    passes: str = ALL_PASSES
    max_concat_inputs: int = 0
    max_sum_inputs: int = 0

    def multiplies(self, intrinsic: str) -> bool:
        """Whether sums of this intrinsic are computed for whole matrices at once."""
        return intrinsic in self.matrix.split(",")

    def without_matrices(self) -> Target:
        """The same machine without matrix registers: a process has to ask for them before it runs such code."""
        return replace(self, matrix="")

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector register."""
        return self.vector_bits // 8

    def lanes(self, bits: int) -> int:
        """Vector lanes for elements of `bits` bits (at least 1)."""
        return max(1, self.vector_bits // max(8, bits))

    def masks(self, bits: int) -> bool:
        """Whether vectors of elements of `bits` bits are loaded under masks in one instruction (AVX and later)."""
        return self.vector_bits >= 256 and bits in (32, 64)

    @property
    def masked_stores(self) -> bool:
        """Whether vectors are stored under masks as fast as whole."""
        return self.vector_bits >= MASKED_STORES


MATRIX_ROWS, MATRIX_WORDS, MATRIX_REGISTERS = 16, 16, 8
"""Rows of a matrix register of a CPU, words of 32 bits in a row, and how many there are (AMX; Intel's Architecture
Instruction Set Extensions Programming Reference, chapter 3, palette 1)."""

MATRIX_PRODUCTS = {"dot_bytes": "amx-int8", "dot_bf16": "amx-bf16"}
"""Intrinsics that a CPU may compute for whole matrices, and LLVM's names of the features."""

WIDEST_ACCESS = 16
"""Bytes that one thread of a GPU loads or stores at most in one instruction."""

REGISTER_BYTES = 4
"""Bytes of a register of a GPU's thread."""

MMA_ROWS, MMA_COLUMNS, MMA_DEPTH = 16, 8, 16
"""Elements of one product of a warp (`mma.sync` m16n8k16; PTX ISA, warp-level matrix instructions)."""

MMA_HALF = 8
"""Rows of the result between the two that a thread of the warp has."""

TF32 = "tf32"
"""The feature of a GPU target that allows products of f32 to round their operands to tf32."""


BESIDE = "cpu"
"""The feature of a GPU target that allows kernels of a model to run on the CPU beside it (`sm_80+cpu`)."""


def mma_feature(element: str) -> str:
    """The feature of a GPU target that multiplies elements of this type on tensor cores (f32 as tf32)."""
    return f"mma.{'tf32' if element == 'f32' else element}"


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """A GPU: limits of a block and of a multiprocessor (SM). Sizes in bytes.

    `kind` chooses the language, `arch` the compiler's name of the architecture (empty: the driver
    compiles the text). `shared` is the most one block may have; beyond `shared_static` it must be
    asked for at launch. `registers` is the most one thread may have, `block_registers` one block.
    The rest is for occupancy: an SM holds at most `sm_threads` threads, `sm_blocks` blocks,
    `sm_registers` registers (given to warps in units of `register_unit`) and `sm_shared` bytes (in
    units of `shared_unit`, `shared_reserved` of them the system's for each block); 0 = unknown.
    `features` names instructions: `cp.async`, `mma.f16`, `mma.bf16`, `mma.tf32`, `wgmma`, `shuffle`; and, in no
    file: `tf32`, products of f32 may use `mma.tf32`, which rounds their operands (`sm_80+tf32`), and `cpu`, kernels of
    models may run on the CPU beside it. `floats` to `max_sum_inputs` are as those of `Target`. The last four: how fast
    it is, for the choice between the two: GB/s of its memory, Gflop/s of f32, GB/s to the host, ns of a launch.
    """

    name: str
    kind: Literal["cuda", "opencl"]
    arch: str
    warp: int
    max_threads: int
    max_block: tuple[int, ...]
    max_grid: tuple[int, ...]
    shared: int
    shared_static: int
    registers: int
    block_registers: int
    sms: int
    sm_threads: int
    sm_blocks: int
    sm_registers: int
    sm_shared: int
    register_unit: int
    shared_unit: int
    shared_reserved: int
    banks: int
    l2: int
    line: int
    features: tuple[str, ...]
    floats: str = FLOATS
    passes: str = ALL_PASSES
    max_concat_inputs: int = 0
    max_sum_inputs: int = 0
    bandwidth: int = 0
    gflops: int = 0
    link: int = 0
    launch: int = 0
