"""What contractions become: thread tiles of 8 x 8, whole tiles without guards, full panels apart from partial ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import differential
import numpy as np
import pytest
import simt
from programs import ALL, arguments
from small_operators import product

from polyc.emit.gpu import targets
from polyc.emit.gpu.program import sequence
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Alloc, For, If, Launch, Stmt, Store, VLoad, walk
from polyc.poly.errors import BuildError
from polyc.scheduler.strategies.auto import automatic


def launch_of(operator: Any) -> Launch:
    schedule = automatic(operator.scop(), simt.TARGET)
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


@pytest.mark.parametrize("n", [4096, pytest.param(2003, marks=pytest.mark.long)])
def test_a_large_product_has_thread_tiles_of_8_by_8(n: int) -> None:
    found = launch_of(product(n, n, n))
    (tile,) = [s.buffer for s in walk(found.body) if isinstance(s, Alloc) and s.buffer.promoted == "C_tile"]
    assert [getattr(e, "value", None) for e in tile.shape] == [8, 2, 4] and found.block_threads == 256


@pytest.mark.parametrize("name", ["matmul_bias_relu", pytest.param("matmul", marks=pytest.mark.long)])
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
    from polyc.scheduler.strategies.gpu import contraction as gpu_contraction

    monkeypatch.setattr(gpu_contraction, "TILES", gpu_contraction.TILES[:1])
    monkeypatch.setattr(gpu_contraction, "SMALLEST", 1)
    m, n, k = size
    operator = product(m, n, k)
    rng = np.random.default_rng(m)
    args = [rng.integers(-3, 4, s).astype("f4") for s in ((m, k), (k, n))]
    schedule = automatic(operator.scop(), simt.TARGET)
    assert simt.agree(schedule, args, differential.oracle(operator, args)) == ""


def test_sizes_that_suit_wide_accesses_have_a_version() -> None:
    schedule = automatic(ALL["matmul"][0].scop(), simt.TARGET)
    fn = simt.finished(schedule.scop, schedule.tree)
    ((wide,), (general,)) = simt.launches(fn, wide=True), simt.launches(fn)
    assert wide.narrow and not general.narrow
    loads = [s.value for s in walk(wide.body) if isinstance(s, Store) and "_panel" in s.array]
    assert loads and all(isinstance(e, VLoad) and e.count == 4 for e in loads)
    program = to_gpu(fn, targets.get("sm_80"))
    names = [sequence(program, {"M": 8, "K": k, "N": n}).calls[0].kernel.name for k, n in ((8, 8), (8, 9), (9, 8))]
    assert names == ["matmul_0_wide", "matmul_0", "matmul_0"]
    large = sequence(program, {"M": 2**16, "K": 2**16, "N": 4}).calls[0].kernel.name
    assert large == "matmul_0", "2**32 elements of A need 64-bit index arithmetic"


def test_a_launch_whose_conditions_do_not_hold_is_an_error() -> None:
    schedule = automatic(ALL["matmul"][0].scop(), simt.TARGET)
    fn = simt.finished(schedule.scop, schedule.tree)
    assert isinstance(fn.body, If)
    wrong = replace(fn, body=fn.body.then)
    with pytest.raises(BuildError, match="matmul_0_wide is launched although K % 4 == 0 does not hold"):
        simt.results(schedule.scop, wrong, arguments("matmul", (8, 8, 7)))


def test_index_arithmetic_of_64_bits_where_32_may_not_do() -> None:
    assert launch_of(product(64, 64, 64)).narrow
    assert not launch_of(product(2**16, 2**15, 64)).narrow, "C has 2**31 elements"
