"""Factorizations and solves in place: found in every order of their loops, blocked by steps, right."""

from __future__ import annotations

from typing import Any

import back_ends
import eliminations
import numpy as np
import pytest
from parts import in_part

from examples.polybench.cholesky import cholesky
from examples.polybench.gramschmidt import gramschmidt
from examples.polybench.lu import lu
from examples.polybench.trmm import trmm
from polyc import dims, f64, inout, op
from polyc.emit.targets import get
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.scheduler.programs import block_factorization
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

TARGET = get("x86-64-v4")
N = dims("N")
ALL = (*eliminations.ALL, lu, cholesky)


def arguments(op_: Any, n: int, m: int, seed: int) -> list[np.ndarray]:
    """A well conditioned matrix, and right-hand sides where the operator takes any."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n))
    args = [a @ a.T + n * np.eye(n)]
    if op_ in eliminations.SOLVES:
        args.append(rng.standard_normal((n, m) if op_ is eliminations.solve_lower else (m, n)))
    return args


def sizes(op_: Any, n: int, m: int) -> dict[str, int]:
    return {"N": n, "M": m} if op_ in eliminations.SOLVES else {"N": n}


BLOCKS = [(11, 4, 2, 4), (12, 4, 4, 2)]


@pytest.mark.parametrize(
    "op_, n, block, rows, columns",  # 12 is a whole number of blocks
    in_part(
        [(op_, *b) for op_ in ALL for b in BLOCKS], lambda op_, n, *_: n == 11 or op_ in (lu, eliminations.solve_lower)
    ),
)
def test_blocks_compute_what_python_does(op_: Any, n: int, block: int, rows: int, columns: int) -> None:
    args = arguments(op_, n, 7, seed=n)
    s = block_factorization(op_.scop(**sizes(op_, n, 7)).schedule(), block=block, rows=rows, columns=columns)
    got = back_ends.interpret(s.scop, s.tree, [x.copy() for x in args])
    wanted = [x.copy() for x in args]
    op_.python(*wanted)
    assert np.allclose(got[-1], wanted[-1], rtol=1e-9, atol=1e-11)
    again = Schedule.replay(s.original, s.save())
    assert again.save() == s.save() and str(again) == str(s)


@pytest.mark.parametrize(
    "op_, threads",
    in_part(
        [(o, t) for o in (lu, cholesky, eliminations.solve_lower) for t in (1, 2)],
        lambda o, t: t == 2 and o is eliminations.solve_lower,
        ids=lambda o, t: f"{t}-{o.name}",
    ),
)
def test_symbolic_sizes_in_native_code(op_: Any, threads: int) -> None:
    s = automatic(op_.scop(), TARGET, threads)
    done = [d for d in s.decisions if d.stage == "elimination"]
    assert [d.outcome for d in done] == ["done"], done
    args = arguments(op_, 150, 33, seed=threads)
    wanted = [x.copy() for x in args]
    op_.python(*wanted)
    op_.compile(schedule=s, threads=threads)(*args)
    assert np.allclose(args[-1], wanted[-1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("op_", ALL, ids=lambda x: x.name)
def test_the_automatic_schedule_finds_them(op_: Any) -> None:
    s = automatic(op_.scop(**sizes(op_, 600, 200)), TARGET)
    (found,) = [d for d in s.decisions if d.stage == "elimination"]
    assert found.outcome == "done" and "register tiles of" in found.what
    assert "outline(" in s.program() and "set_order" not in s.program()


def test_few_steps_are_not_blocked() -> None:
    (found,) = [d for d in automatic(lu.scop(N=100), TARGET).decisions if d.stage == "elimination"]
    assert found.outcome == "declined" and "steps are less than" in found.reason


def test_why_not() -> None:
    """Gram-Schmidt's updates use sums over all rows of the step: no blocks of steps."""
    found = [d for d in automatic(gramschmidt.scop(M=600, N=500), TARGET).decisions if d.stage == "elimination"]
    assert [d.outcome for d in found] == ["impossible"] and "writes" in found[0].reason, found


def test_products_are_none() -> None:
    """What trmm multiplies is complete before, or never changes: a product, perhaps, but no elimination."""
    with pytest.raises(ScheduleError, match="no statement is an elimination"):
        block_factorization(trmm.scop(M=50, N=40).schedule())


def test_tiles_fill_blocks() -> None:
    with pytest.raises(ScheduleError, match="do not fill blocks of 96"):
        block_factorization(lu.scop().schedule(), rows=7)


# ---- the steps --------------------------------------------------------------------------------


@op
def halves(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i):
            A[i, j] = A[i, j] * 2.0 + A[i, i]
        for j in range(i + 1, N):
            A[i, j] = A[i, j] * 2.0 + A[i, i]


@op
def unlike(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i):
            A[i, j] = A[i, j] * 2.0
        for j in range(i, N):
            A[i, j] = A[i, j] * 3.0


@op
def twice(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i + 1):
            A[i, j] = A[i, j] * 2.0
        for j in range(i, N):
            A[i, j] = A[i, j] * 2.0


def interpreted(s: Schedule, n: int) -> np.ndarray:
    a = np.random.default_rng(n).standard_normal((n, n))
    got: np.ndarray = back_ends.interpret(s.scop, s.tree, [a])[-1]
    return got


def test_statements_are_united_and_split_again() -> None:
    start = halves.scop(N=9).schedule()
    one = start.fuse("j", "j_1").unite_statements("S0", "S1")
    assert list(one.scop.statements) == ["S0"]
    two = one.index_split("i", 4).split_statement("S0", "i_1", "late")
    assert list(two.scop.statements) == ["S0", "late"]
    for s in (one, two, two.vectorize("j_1", 4)):
        assert (interpreted(s, 9) == interpreted(start, 9)).all()
        assert str(Schedule.replay(s.original, s.save())) == str(s)


def test_what_cannot_be_united() -> None:
    with pytest.raises(ScheduleError, match="not in the same loops"):
        halves.scop().schedule().unite_statements("S0", "S1")
    with pytest.raises(ScheduleError, match="compute different things"):
        unlike.scop().schedule().fuse("j", "j_1").unite_statements("S0", "S1")
    with pytest.raises(ScheduleError, match="some instances of both would be one"):
        twice.scop().schedule().fuse("j", "j_1").unite_statements("S0", "S1")


def test_what_cannot_be_split() -> None:
    s = halves.scop().schedule()
    with pytest.raises(ScheduleError, match="all instances of S0 are inside loop 'j'"):
        s.split_statement("S0", "j")
    with pytest.raises(ScheduleError, match="loop 'j' is not around S1"):
        s.split_statement("S1", "j")
    with pytest.raises(ScheduleError, match="'A' is no new name"):
        s.index_split("i", 4).split_statement("S0", "i", "A")


def test_an_order_that_a_dependence_forbids_is_refused() -> None:
    """Columns cannot go before the steps that complete them, whoever proposes it."""
    s = block_factorization(lu.scop(N=20).schedule(), block=4, rows=2, columns=2)
    with pytest.raises(IllegalSchedule):
        s.reverse("k.out")
