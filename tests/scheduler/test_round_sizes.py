"""Products of round sizes: the lines of a register tile's rows stay in L1, whatever the stride, for both vector widths.

A simulated cache (sets, ways, least recently used) follows the loads of one tile: its row values and its panel.
"""

from __future__ import annotations

import pytest

from polyc import dims, empty, f32, op
from polyc.emit import targets
from polyc.poly.target import Target
from polyc.scheduler.cost.tile_plan import TilePlan, plan_tile
from polyc.scheduler.recognition.contraction import recognise

M, N, K = dims("M N K")
CPUS = ("x86-64-v3", "x86-64-v4", "sapphire-rapids", "neoverse-v1")
STEPS = 512  # of the reduction that are followed
FLOAT = 4


@op
def layer(X: f32[M, K], W: f32[K, N], B: f32[N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            Y[i, j] = 0.0
            for k in range(K):
                Y[i, j] += X[i, k] * W[k, j]
            Y[i, j] += B[j]
    return Y


class Cache:
    """Counts the misses of one cache."""

    def __init__(self, target: Target) -> None:
        self.ways, self.line = target.l1_ways, target.line
        self.sets: list[list[int]] = [[] for _ in range(target.l1 // target.line // target.l1_ways)]

    def misses(self, address: int) -> int:
        """1 where the line of this address has to be fetched, else 0."""
        line = address // self.line
        held = self.sets[line % len(self.sets)]
        missed = line not in held
        if not missed:
            held.remove(line)
        elif len(held) == self.ways:
            del held[0]
        held.append(line)
        return int(missed)


def row_misses(rows: int, apart: int, columns: int, target: Target) -> float:
    """Misses of a tile's row values for each of their lines; rows are `apart` bytes apart (0: copied together)."""
    cache, panel, found = Cache(target), 1 << 30, 0
    for k in range(STEPS):
        for r in range(rows):
            found += cache.misses(r * apart + k * FLOAT if apart else (k * rows + r) * FLOAT)
        for lane in range(0, columns * FLOAT, target.line):
            cache.misses(panel + k * columns * FLOAT + lane)
    return found / (rows * STEPS * FLOAT / target.line)


def planned(m: int | None, n: int, k: int, target: Target) -> TilePlan:
    scop = layer.scop(N=n, K=k) if m is None else layer.scop(M=m, N=n, K=k)
    (contraction,) = (c for c in map(recognise, scop.statements.values()) if c is not None)
    plan = plan_tile(scop, contraction, target, frozenset({"W", "B"}))
    assert plan is not None
    return plan


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("m", [32, 48, 197, None])
def test_rows_of_any_stride_stay_in_l1(cpu: str, m: int | None) -> None:
    target = targets.get(cpu)
    for k in (*range(512, 5121, 256), 768 + 16, 1000, 1040, 3088, 4112, 8192, 11008):
        plan = planned(m, 1024, k, target)
        assert plan.columns == "j", (k, plan)  # lanes along the weights, which are stored for it
        apart = 0 if plan.pack_rows else k * FLOAT
        assert row_misses(plan.tile.rows, apart, plan.tile.columns, target) < 1.1, (k, plan.tile)


def test_the_simulated_cache_sees_rows_that_share_a_set() -> None:
    target = targets.get("x86-64-v4")
    assert row_misses(13, 4096 * FLOAT, 32, target) > 8
    assert row_misses(13, 4112 * FLOAT, 32, target) < 1.1


def test_tall_tiles_are_kept_at_round_sizes() -> None:
    """AVX-512's tiles of a dozen rows and more: at multiples of 1024 their rows are copied side by side."""
    target = targets.get("x86-64-v4")
    round_one, odd_one = planned(48, 1024, 4096, target), planned(48, 1024, 4112, target)
    assert round_one.pack_rows
    assert not odd_one.pack_rows
    assert round_one.tile.rows >= odd_one.tile.rows
