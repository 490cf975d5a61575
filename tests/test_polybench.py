"""The 30 PolyBench kernels: plain Python = interpreter = LLVM = C, and legal automatic schedules."""

from __future__ import annotations

from functools import cache

import back_ends
import numpy as np
import pytest

from examples import polybench
from polyc.poly.legality import check

# Plain Python takes a second and more on these at SMALL.
SLOW = ("floyd-warshall", "heat-3d", "seidel-2d", "nussinov", "jacobi-2d", "adi")
SMALL = [pytest.param(n, marks=pytest.mark.long) if n in SLOW else n for n in polybench.MODULES]


@cache
def kernel(name: str) -> polybench.Kernel:
    return polybench.load(name)


@cache
def plain(name: str, size: str) -> tuple[np.ndarray, ...]:
    """The plain-Python run: the oracle."""
    k = kernel(name)
    args, constants = k.arguments(size)
    return polybench.run(k.exact.python, k.exact, args, **constants)


def close(got: np.ndarray, expected: np.ndarray) -> bool:
    """Within rounding, relative to the array's scale. Elements that nobody wrote stay undefined."""
    written = ~np.isnan(expected)
    scale = max(float(np.abs(expected[written]).max(initial=0)), 1e-300)
    return bool((np.abs(got - expected)[written] <= 1e-12 * scale).all())


def test_there_are_thirty() -> None:
    assert len(polybench.MODULES) == 30


@pytest.mark.parametrize("size", ["MINI", "SMALL"])
@pytest.mark.parametrize("name", SMALL)
def test_plain_python_computes_the_right_thing(name: str, size: str) -> None:
    got, expected = plain(name, size), kernel(name).expected(size)
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape and not np.isnan(g).any() and close(g, e)


def agree(name: str, size: str, backend: str) -> None:
    k = kernel(name)
    args, constants = k.arguments(size)
    scop = k.exact.scop(**constants)
    assert back_ends.difference(back_ends.execute(scop, scop.tree, args, backend), plain(name, size)) == ""


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("name", polybench.MODULES)
def test_bit_equal_without_reassociation_mini(name: str, backend: str) -> None:
    agree(name, "MINI", backend)


@pytest.mark.parametrize("backend", back_ends.NATIVE)
@pytest.mark.parametrize("name", SMALL)
def test_bit_equal_without_reassociation_small(name: str, backend: str) -> None:
    agree(name, "SMALL", backend)


@pytest.mark.long
@pytest.mark.parametrize("name", polybench.MODULES)
def test_the_interpreter_is_bit_equal_too_small(name: str) -> None:
    agree(name, "SMALL", "interp")


def automatic(name: str, size: str, backend: str, exact: bool) -> None:
    """The automatic schedule is legal and keeps the results (all bits when `exact`)."""
    from polyc.emit.targets import host
    from polyc.scheduler.strategies.auto import automatic

    k = kernel(name)
    args, constants = k.arguments(size)
    scop = (k.exact if exact else k.operator).scop(**constants)
    schedule = automatic(scop, host())
    check(schedule.scop, schedule.tree)
    got, expected = back_ends.execute(schedule.scop, schedule.tree, args, backend), plain(name, size)
    if exact:
        assert back_ends.difference(got, expected) == ""
    else:
        assert all(close(g, e) for g, e in zip(got, expected, strict=True))


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("name", polybench.MODULES)
def test_automatic_schedule_mini(name: str, backend: str) -> None:
    automatic(name, "MINI", backend, exact=False)


@pytest.mark.parametrize("name", polybench.MODULES)
def test_automatic_schedule_is_bit_equal_without_reassociation(name: str) -> None:
    automatic(name, "MINI", "llvm", exact=True)


@pytest.mark.parametrize("backend", back_ends.NATIVE)
@pytest.mark.parametrize("name", SMALL)
def test_automatic_schedule_small(name: str, backend: str) -> None:
    automatic(name, "SMALL", backend, exact=False)
