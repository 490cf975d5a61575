"""How many accumulators: the register tile of a contraction, from the machine's data.

A tile of `rows` broadcast values times `vectors` vector registers keeps
`rows * vectors` accumulators, needs `vectors + 1` registers for operands, and does
`rows * vectors` FMAs for `rows + vectors` loads (Goto & van de Geijn, TOMS 2008;
Low et al., "Analytical modeling is enough for high-performance BLIS", TOMS 2016).
"""

from __future__ import annotations

from functools import lru_cache

from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.scheduler.cost.panels import LONG
from polyc.scheduler.cost.ties import TIE

FMA_LATENCY = 4.25  # cycles (4 on every x86-64 and Arm core of the last decade, and some disorder)
LOADS_PER_CYCLE = 2
SHUFFLES_PER_CYCLE = 1
GATHER_CYCLES = 1.0
"""Of the FMA units for each vector of columns that lie further apart: its shuffles go through the same ports
(measured: Zen 3, tiles of 2 to 12 rows and 1 to 3 vectors of columns 2 and 3 apart: 1.0 to 2.8)."""
L2_BYTES_PER_CYCLE = 16  # sustained beside the arithmetic (measured); nominal are 32 or 64
AVX2_BYTES = 32  # of a vector
L2_BYTES_OF_AVX2 = 24  # the same with vectors of 32 bytes (measured: Zen 3, tiles of 3 x 3 and 2 x 4 vectors)
MOST_VECTORS = 8
UNKNOWN_VECTORS = 2
"""Of a row of unknown length over a reduction that is not long: 3 to 8 take 1.0 to 2.9 times as long (measured: windows
of 3 x 3 and 5 x 5, rows of 20 to 320), since where a row ends each vector of the tile is guarded."""
HAND_ROWS, HAND_COLUMNS = 4, 16  # of a tile, where a schedule by hand does not say
MOST_ROWS = 14
ONE_VECTOR_SHARE = 5 / 8
"""Of the registers are sums at most where they are one vector wide and how many rows there are is not known: taller
tiles compute more rows twice at the end, and LLVM spills some of their sums where windows are unrolled (measured on
windows of 3 x 3 over 128 channels: 13 rows 34 to 45 GFLOP/s, 8 to 10 rows 43 to 62)."""
SPARE_REGISTERS = 1  # with none left LLVM's allocator spills an accumulator (measured: 44 instead of 75 GFLOP/s)
MASKED_COST = 1.25  # a vector of which only some lanes count: loads under a mask


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`rows` x `vectors * lanes`; `efficiency` is the predicted share of the FMA peak."""

    rows: int
    vectors: int
    lanes: int
    efficiency: float

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return self.vectors * self.lanes


def step_cycles(
    rows: int, vectors: float, target: Target, depth: int = 0, apart: int = 1, latency: float = FMA_LATENCY
) -> float:
    """Cycles of one step of the reduction in a tile: bound by latency, by loads, by shuffles where
    columns are `apart` elements apart, or, where a panel of `depth` steps does not stay in half of
    L1, by what L2 delivers."""
    fmas, loads, shuffles = rows * vectors, rows + vectors * apart, vectors * (apart - 1)
    cycles = max(fmas / target.fma_units, loads / LOADS_PER_CYCLE, shuffles / SHUFFLES_PER_CYCLE, latency)
    step = vectors * target.vector_bytes
    if depth * step > target.l1 // 2:
        cycles = max(cycles, step / (L2_BYTES_OF_AVX2 if target.vector_bytes == AVX2_BYTES else L2_BYTES_PER_CYCLE))
    return cycles


def _row_tiles(rows: int | None, height: int) -> list[tuple[int, float]]:
    """Heights of tiles and how many there are."""
    if rows is None:
        return [(height, 1.0)]
    return [t for t in ((height, rows // height), (rows % height, 1.0)) if t[0] and t[1]]


def _column_tiles(
    columns: int | None, vectors: int, lanes: int, target: Target, apart: int
) -> list[tuple[float, float]]:
    """Vectors in tiles (what is left over is masked, or cut into powers of two) and how many there are."""
    if columns is None:
        return [(float(vectors), 1.0)]
    full, rest = divmod(columns, vectors * lanes)
    short = rest % lanes
    masked = short.bit_count() > 1 and _masked(lanes, target, apart)
    cost = rest // lanes + (MASKED_COST if masked else short.bit_count())
    return [t for t in ((float(vectors), float(full)), (cost, 1.0)) if t[0] and t[1]]


def _masked(lanes: int, target: Target, apart: int) -> bool:
    """Whether a partial vector is loaded under a mask."""
    return apart == 1 and target.masks(target.vector_bits // lanes)


def pieces(columns: int | None, lanes: int, target: Target, apart: int) -> int:
    """Registers for each vector of a row: less than a whole vector of columns is masked, or cut into powers of two."""
    if columns is None or columns >= lanes or _masked(lanes, target, apart):
        return 1
    return columns.bit_count()


def efficiency(rows: int | None, columns: int | None, tile: tuple[int, int, int], target: Target, depth: int = 0,
               apart: int = 1) -> float:  # fmt: skip
    """Share of the FMA peak that tiles of (rows, vectors, lanes) reach on a `rows` x `columns` output."""
    height, vectors, lanes = tile
    wide = _column_tiles(columns, vectors, lanes, target, apart)
    return _share(rows, columns, tile, wide, target, depth, apart)


def _share(
    rows: int | None, columns: int | None, tile: tuple[int, int, int], wide: list[tuple[float, float]], target: Target,
    depth: int, apart: int, latency: float = FMA_LATENCY,
) -> float:  # fmt: skip
    """The share of tiles whose columns are cut into `wide`."""
    height, vectors, lanes = tile
    cycles = sum(
        many * more * step_cycles(h, v, target, depth, apart, latency)
        for h, many in _row_tiles(rows, height)
        for v, more in wide
    )
    useful = (height if rows is None else rows) * (vectors if columns is None else columns / lanes)
    return useful / target.fma_units / cycles


def gathered_share(tile: RegisterTile, depth: int, apart: int, target: Target) -> float:
    """What gathering columns that lie `apart` leaves of a tile's speed."""
    cycles = step_cycles(tile.rows, tile.vectors, target, depth, apart)
    return cycles / (cycles + GATHER_CYCLES * tile.vectors * (apart - 1))


def tile_fits(rows: int, vectors: int, target: Target) -> bool:
    """Whether the accumulators of a tile and the operands of a step fit the registers."""
    return (rows + 1) * vectors + 1 <= target.vector_registers - SPARE_REGISTERS


def _most_rows(rows: int | None, vectors: int, target: Target) -> int:
    """Of tiles so many vectors wide."""
    if rows is None and vectors == 1:
        return min(MOST_ROWS, int(ONE_VECTOR_SHARE * target.vector_registers))
    return MOST_ROWS


@lru_cache(maxsize=4096)
def choose(rows: int | None, columns: int | None, lanes: int, target: Target, depth: int = 0,
           apart: int = 1, most_rows: int | None = None) -> RegisterTile:  # fmt: skip
    """The best tile, of at most `most_rows`, for a `rows` x `columns` output (None = symbolic, taken as large), `depth`
    steps of the reduction and panel columns `apart` elements apart."""
    best: RegisterTile | None = None
    registers = pieces(columns, lanes, target, apart)
    overlapped = rows == 1 and columns is None and 0 < depth <= LONG
    latency, most_vectors = (0.0, UNKNOWN_VECTORS) if overlapped else (FMA_LATENCY, MOST_VECTORS)
    for vectors in range(1, most_vectors + 1):
        wide = _column_tiles(columns, vectors, lanes, target, apart)
        for r in range(1, min(_most_rows(rows, vectors, target), most_rows or MOST_ROWS) + 1):
            if not tile_fits(r, vectors * registers, target):
                break
            share = _share(rows, columns, (r, vectors, lanes), wide, target, depth, apart, latency)
            tile = RegisterTile(r, vectors, lanes, share)
            gain = 1.0 if best is None else tile.efficiency - best.efficiency
            taller = best is not None and best.vectors == vectors and (rows is None or r <= rows)
            far = depth * vectors * target.vector_bytes > target.l1 // 2
            if gain > (-TIE if taller and far else TIE):  # of tiles alike the taller reads its panel less often
                best = tile
    assert best is not None
    return best
