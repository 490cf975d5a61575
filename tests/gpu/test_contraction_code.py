"""What contractions become: thread tiles of 8 x 8, whole tiles without guards, full panels apart from partial ones."""

from __future__ import annotations

from typing import Any

import differential
import numpy as np
import pytest
import simt
from programs import ALL

from emit.loops import Alloc, For, If, Launch, Stmt, Store, walk
from polyc import empty, f32, grid, op
from scheduler.strategies.gpu import automatic_gpu


def product(m: int, n: int, k: int) -> Any:
    """A matrix product of fixed sizes."""

    @op
    def fixed(A: f32[m, k], B: f32[k, n]) -> f32[m, n]:  # type: ignore[valid-type]
        C = empty((m, n), f32)
        for i, j in grid(m, n):
            C[i, j] = 0.0
            for p in range(k):
                C[i, j] += A[i, p] * B[p, j]
        return C

    return fixed


def launch_of(operator: Any) -> Launch:
    schedule = automatic_gpu(operator.scop(), simt.TARGET)
    (found,) = simt.launches(simt.finished(schedule.scop, schedule.tree))
    return found


def stores_to(s: Stmt, stem: str) -> list[Store]:
    return [x for x in walk(s) if isinstance(x, Store) and x.array.startswith(stem)]


def guards_of(s: Stmt, stem: str) -> int:
    """Conditions around stores to the buffers of this name."""
    if isinstance(s, Store):
        return 0
    here = len(stores_to(s, stem)) if isinstance(s, If) else 0
    return here + sum(guards_of(b, stem) for b in s.bodies())


@pytest.mark.parametrize("n", [4096, 2003])
def test_a_large_product_has_thread_tiles_of_8_by_8(n: int) -> None:
    found = launch_of(product(n, n, n))
    (tile,) = [s.buffer for s in walk(found.body) if isinstance(s, Alloc) and s.buffer.promoted == "C_tile"]
    assert [getattr(e, "value", None) for e in tile.shape] == [8, 2, 4] and found.block_threads == 256


@pytest.mark.parametrize("name", ["matmul", "matmul_bias_relu"])
def test_registers_are_computed_whole(name: str) -> None:
    found = launch_of(ALL[name][0])
    assert stores_to(found.body, "C_tile") and not guards_of(found.body, "C_tile") + guards_of(found.body, "A_column")
    assert guards_of(found.body, "D" if name == "matmul_bias_relu" else "C"), "what is stored in memory has guards"


def test_full_panels_have_a_loop_of_their_own() -> None:
    body = launch_of(product(200, 200, 100)).body
    inner = [s.hi for s in walk(body) if isinstance(s, For) and s.loop == "p.in"]
    assert [getattr(h, "value", None) for h in inner] == [16, 4]
    symbolic = launch_of(ALL["matmul"][0]).body
    assert len([s for s in walk(symbolic) if isinstance(s, For) and s.loop == "k.out"]) == 2


@pytest.mark.long
@pytest.mark.parametrize("size", [(130, 67, 21), (61, 129, 8), (257, 140, 3)])
def test_large_tiles_at_their_edges(size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    from scheduler.strategies import gpu_contraction

    monkeypatch.setattr(gpu_contraction, "TILES", gpu_contraction.TILES[:1])
    monkeypatch.setattr(gpu_contraction, "SMALLEST", 1)
    m, n, k = size
    operator = product(m, n, k)
    rng = np.random.default_rng(m)
    args = [rng.integers(-3, 4, s).astype("f4") for s in ((m, k), (k, n))]
    schedule = automatic_gpu(operator.scop(), simt.TARGET)
    assert simt.agree(schedule, args, differential.oracle(operator, args)) == ""
