"""How many accumulators: the register tile of a contraction, from the machine's data.

A tile of `rows` broadcast values times `vectors` vector registers keeps
`rows * vectors` accumulators, needs `vectors + 1` registers for operands, and does
`rows * vectors` FMAs for `rows + vectors` loads (Goto & van de Geijn, TOMS 2008;
Low et al., "Analytical modeling is enough for high-performance BLIS", TOMS 2016).
"""

from __future__ import annotations

from dataclasses import dataclass

from poly.target import Target

FMA_LATENCY = 4  # cycles, on every x86-64 and Arm core of the last decade (4 to 5)
LOADS_PER_CYCLE = 2
SHUFFLES_PER_CYCLE = 1
L2_BYTES_PER_CYCLE = 16  # sustained (measured); the nominal 32 or 64 is reached by nothing else running
MOST_VECTORS = 8
SPARE_REGISTERS = 1  # with none left LLVM's allocator spills an accumulator (measured: 44 instead of 75 GFLOP/s)
PARTIAL_COST = 3.0  # a tile cut by the border runs guarded and masked: in units of a full tile


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`rows` x `vectors * lanes`; `efficiency` is the predicted share of the FMA peak."""

    rows: int
    vectors: int
    lanes: int
    efficiency: float

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def throughput(rows: int, vectors: int, target: Target, depth: int = 0, apart: int = 1) -> float:
    """Share of the FMA peak of one tile in steady state: bound by latency, by loads, by shuffles
    where columns are `apart` elements apart, or, where a panel of `depth` steps does not stay in
    half of L1, by what L2 delivers."""
    fmas, loads, shuffles = rows * vectors, rows + vectors * apart, vectors * (apart - 1)
    cycles = max(fmas / target.fma_units, loads / LOADS_PER_CYCLE, shuffles / SHUFFLES_PER_CYCLE, float(FMA_LATENCY))
    step = vectors * target.vector_bits // 8
    if depth * step > target.l1 // 2:
        cycles = max(cycles, step / L2_BYTES_PER_CYCLE)
    return fmas / target.fma_units / cycles


def filled(extent: int | None, step: int) -> float:
    """Share of useful work when `extent` is cut in steps (1 for a symbolic extent)."""
    if extent is None:
        return 1.0
    full, rest = divmod(extent, step)
    return extent / step / (full + (PARTIAL_COST if rest else 0.0))


def choose(rows: int | None, columns: int | None, lanes: int, target: Target, depth: int = 0,
           apart: int = 1) -> RegisterTile:  # fmt: skip
    """The best tile for a `rows` x `columns` output (None = symbolic, taken as large), `depth`
    steps of the reduction and panel columns `apart` elements apart."""
    best: RegisterTile | None = None
    for vectors in range(1, MOST_VECTORS + 1):
        for r in range(1, 15):
            if r * vectors + vectors + 1 > target.vector_registers - SPARE_REGISTERS:
                break
            waste = filled(rows, r) * filled(columns, vectors * lanes)
            tile = RegisterTile(r, vectors, lanes, throughput(r, vectors, target, depth, apart) * waste)
            if best is None or tile.efficiency > best.efficiency + 1e-9:
                best = tile
    assert best is not None
    return best
