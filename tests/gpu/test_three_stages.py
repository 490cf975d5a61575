"""Panels of tensor cores come two iterations ahead, in groups of copies: waits that are too short are found."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sass
import simt
import texts
from sass import needs_disassembler
from small_operators import product
from texts import needs_nvidia, needs_shim

from polyc import f16
from polyc.emit.gpu import targets
from polyc.emit.gpu.devices.shim import ShimError
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Alloc, Barrier, Block, EndCopies, Function, If, Stmt, walk
from polyc.emit.loop_ir.printer import to_text
from polyc.emit.loop_ir.rewrite import with_bodies
from polyc.emit.loop_ir.verify import verify
from polyc.poly.dtypes import bool_
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Var, const_int
from polyc.scheduler.strategies.auto import automatic

M, N, K = 128, 64, 128  # one block, four panels


small = product(M, N, K, f16)


@cache
def lowered(arch: str = "sm_80") -> tuple[Any, Function]:
    target = targets.get(arch)
    schedule = automatic(small.scop(), target)
    return schedule.scop, lower_gpu(schedule.scop, schedule.tree, "f", target)


@cache
def arguments() -> tuple[list[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((M, K), (K, N)))
    return [a.astype("f2"), b.astype("f2")], a @ b


def changed(fn: Function, pending: int) -> Function:
    """With barriers that leave so many groups under way."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Barrier) and s.pending:
            return replace(s, pending=pending)
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    return replace(fn, body=visit(fn.body))


def test_three_buffers_and_one_group_under_way() -> None:
    fn = lowered()[1]
    panels = [s.buffer for s in walk(fn.body) if isinstance(s, Alloc) and s.buffer.space == "shared"]
    assert len(panels) == 2 and all(b.shape[0] == const_int(3) for b in panels)
    assert [s.pending for s in walk(fn.body) if isinstance(s, Barrier)] == [1, 1], "before the loop, and in it"
    assert sum(isinstance(s, EndCopies) for s in walk(fn.body)) == 3, "two before the loop, one an iteration"


@pytest.mark.parametrize("panels", [1, 2, 3])
def test_few_panels(panels: int) -> None:
    """With two panels nothing is fetched in the loop, and no barrier stands at its end."""
    target = targets.get("sm_80")
    schedule = automatic(product(32, 32, 32 * panels, f16).scop(), target)
    fn = lower_gpu(schedule.scop, schedule.tree, "f", target)
    rng = np.random.default_rng(panels)
    a, b = (rng.integers(-3, 4, s).astype("f4") for s in ((32, 32 * panels), (32 * panels, 32)))
    assert (simt.results(schedule.scop, fn, [a.astype("f2"), b.astype("f2")], races=True)[0] == a @ b).all()


@pytest.mark.parametrize(
    "pending", [pytest.param(0, marks=pytest.mark.long), pytest.param(1, marks=pytest.mark.long), 2]
)
def test_the_interpreter_knows_groups(pending: int) -> None:
    scop, fn = lowered()
    args, expected = arguments()
    wrong = changed(fn, pending)
    if pending < 2:
        assert (simt.results(scop, wrong, args, races=True)[0] == expected).all()
        return
    with pytest.raises(simt.Race, match="before its asynchronous copy was waited for"):
        simt.results(scop, wrong, args, races=True)


@needs_shim
@pytest.mark.parametrize(("order", "check"), [("shuffled", "bounds"), ("forward", "races")])
def test_the_text_on_the_cpu(order: str, check: str) -> None:
    scop, fn = lowered()
    args, expected = arguments()
    program = to_gpu(fn, targets.get("sm_80"))
    assert "cp.async.wait_group 1;" in program.text and "cp.async.commit_group;" in program.text
    assert (texts.on_shim(scop, program, args, order=order, check=check)[0] == expected).all()


@needs_shim
def test_a_wait_that_is_too_short_shows_on_the_cpu() -> None:
    scop, fn = lowered()
    args, expected = arguments()
    wrong = to_gpu(changed(fn, 2), targets.get("sm_80"))
    try:
        (c,) = texts.on_shim(scop, wrong, args)
    except ShimError:
        return
    assert not (c == expected).all()


@needs_nvidia
@needs_disassembler
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90", marks=pytest.mark.long)])
def test_machine_code(arch: str, tmp_path: Path) -> None:
    kernel = small.compile(target=arch)
    (used,) = kernel.cubin().resources
    assert used.spill_loads == used.spill_stores == 0
    (code,) = sass.kernels(kernel.cubin().image, tmp_path).values()
    everywhere = [name for name, _ in code]
    assert "LDGDEPBAR" in everywhere and any(name.startswith("DEPBAR") for name in everywhere)


def test_groups_end_for_all_threads_or_none() -> None:
    fn = lowered()[1]
    x = next(s for s in walk(fn.body) if type(s).__name__ == "Launch").threads[0][0]

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, EndCopies):
            return If(Binary("<", Var(x), const_int(1), bool_), s)
        return with_bodies(s, tuple(visit(b) for b in s.bodies()))

    with pytest.raises(BuildError, match="a group of copies in 'f_0' under a condition on which threads may disagree"):
        verify(replace(fn, body=visit(fn.body)))
    with pytest.raises(BuildError, match="a group of copies outside a launch"):
        verify(replace(fn, body=Block((fn.body, EndCopies(1)))))
    assert "barrier after copies but for the last 1 groups" in to_text(fn)
