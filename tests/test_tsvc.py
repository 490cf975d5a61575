"""The 151 loops of TSVC: plain Python = interpreter = LLVM = C, in program order and under automatic schedules."""

from __future__ import annotations

from functools import cache

import back_ends
import numpy as np
import pytest

from examples import tsvc
from polyc import op
from polyc.emit.targets import host
from polyc.poly.legality import check
from polyc.poly.scop import Scop
from polyc.scheduler.strategies.auto import automatic

SIZES = {"N": 80, "M": 25, "L": 700}  # N is a multiple of 40, as TSVC asks; M divides nothing
BACKENDS = [pytest.param(b, marks=pytest.mark.long) if b == "c" else b for b in back_ends.ALL]
OTHER_FUNCTIONS = ("s451",)  # NumPy's sine and cosine have other last bits


@cache
def plain(name: str) -> list[np.ndarray]:
    """The plain-Python run: the oracle."""
    loop = tsvc.load(name)
    exact = op(reassociate=False)(loop.operator.fn)
    args = [np.array(x) if isinstance(x, np.ndarray) else x for x in arguments(name)]
    own = {c: v for c, v in loop.constants(SIZES).items() if c not in loop.sizes}
    result = exact.python(*args, **own)
    return [
        *(x for x, p in zip(args, loop.operator.signature.params, strict=True) if p.inout),
        *([] if result is None else [np.asarray(result)]),
    ]


@cache
def arguments(name: str) -> list[object]:
    return list(tsvc.load(name).inputs(SIZES, np.random.default_rng(7)).values())


def scop_of(name: str, exact: bool) -> Scop:
    loop = tsvc.load(name)
    operator = op(reassociate=False)(loop.operator.fn) if exact else loop.operator
    return operator.scop(**loop.constants(SIZES))


def close(got: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    """Within rounding, relative to the largest element of the array."""
    return all(
        bool((np.abs(g - e) <= 1e-5 * max(1e-3, float(np.abs(e).max()))).all())
        for g, e in zip(got, expected, strict=True)
    )


def test_there_are_151() -> None:
    assert len(tsvc.MODULES) == 151 == len({tsvc.load(name).operator.fn for name in tsvc.MODULES})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", tsvc.MODULES)
def test_program_order(name: str, backend: str) -> None:
    scop = scop_of(name, exact=True)
    got = back_ends.execute(scop, scop.tree, arguments(name), backend)
    if name in OTHER_FUNCTIONS:
        assert close(got, plain(name))
    else:
        assert back_ends.difference(got, plain(name)) == ""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", tsvc.MODULES)
def test_automatic_schedule(name: str, backend: str) -> None:
    scop = scop_of(name, exact=False)
    schedule = automatic(scop, host())
    check(schedule.scop, schedule.tree)
    assert close(back_ends.execute(schedule.scop, schedule.tree, arguments(name), backend), plain(name))


@pytest.mark.parametrize("name", [n for n in tsvc.MODULES if n not in OTHER_FUNCTIONS])
def test_automatic_schedule_is_bit_equal_without_reassociation(name: str) -> None:
    scop = scop_of(name, exact=True)
    schedule = automatic(scop, host())
    got = back_ends.execute(schedule.scop, schedule.tree, arguments(name), "llvm")
    assert back_ends.difference(got, plain(name)) == ""
