"""The 30 PolyBench kernels: plain Python = interpreter = LLVM = C, and legal automatic schedules."""

from __future__ import annotations

from functools import cache
from typing import Any

import back_ends
import numpy as np
import pytest
from parts import in_part

from examples import polybench
from polyc.poly.legality import check
from polyc.poly.scop import Scop
from polyc.poly.tree import Node

# NumPy takes a second and more on these at SMALL.
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


@pytest.mark.parametrize("size", ["MINI", pytest.param("SMALL", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", polybench.MODULES)
def test_plain_python_computes_the_right_thing(name: str, size: str) -> None:
    got, expected = plain(name, size), kernel(name).expected(size)
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == e.dtype and g.shape == e.shape and not np.isnan(g).any() and close(g, e)


def agree(name: str, size: str) -> None:
    k = kernel(name)
    args, constants = k.arguments(size)
    scop = k.exact.scop(**constants)
    for backend, found in ran(scop, scop.tree, args, back_ends.ALL).items():
        assert back_ends.difference(found, plain(name, size)) == "", backend


def ran(scop: Scop, tree: Node, args: list[Any], backends: list[str]) -> dict[str, list[np.ndarray]]:
    """What the same loops compute on each back end."""
    fn = back_ends.finished(scop, tree)
    return {
        b: back_ends.interpret(scop, tree, args, fn=fn)
        if b == "interp"
        else back_ends.native(scop, tree, args, b, fn=fn)
        for b in backends
    }


@pytest.mark.parametrize("name", polybench.MODULES)
def test_bit_equal_without_reassociation_mini(name: str) -> None:
    agree(name, "MINI")


@pytest.mark.parametrize("name", SMALL)
def test_bit_equal_without_reassociation_small(name: str) -> None:
    """With each other, and near NumPy; plain Python, which has MINI's bits, takes too long for each time."""
    k = kernel(name)
    args, constants = k.arguments("SMALL")
    scop = k.exact.scop(**constants)
    found = ran(scop, scop.tree, args, back_ends.NATIVE)
    for backend, got in found.items():
        assert all(close(g, e) for g, e in zip(got, k.expected("SMALL"), strict=True)), backend
        assert back_ends.difference(got, found["llvm"]) == "", backend


@pytest.mark.long
@pytest.mark.parametrize("name", polybench.MODULES)
def test_bit_equal_to_plain_python_small(name: str) -> None:
    agree(name, "SMALL")


def automatic(name: str, size: str, backends: list[str], exact: bool) -> None:
    """The automatic schedule is legal and keeps the results (all bits when `exact`)."""
    from polyc.emit.targets import host
    from polyc.scheduler.strategies.auto import automatic

    k = kernel(name)
    args, constants = k.arguments(size)
    scop = (k.exact if exact else k.operator).scop(**constants)
    schedule = automatic(scop, host())
    check(schedule.scop, schedule.tree)
    expected = plain(name, size) if size == "MINI" else k.expected(size)
    for backend, got in ran(schedule.scop, schedule.tree, args, backends).items():
        if exact:
            assert back_ends.difference(got, expected) == "", backend
        else:
            assert all(close(g, e) for g, e in zip(got, expected, strict=True)), backend


@pytest.mark.parametrize("name", polybench.MODULES)
def test_automatic_schedule_mini(name: str) -> None:
    automatic(name, "MINI", back_ends.ALL, exact=False)


@pytest.mark.parametrize("name", polybench.MODULES)
def test_automatic_schedule_is_bit_equal_without_reassociation(name: str) -> None:
    automatic(name, "MINI", ["llvm"], exact=True)


@pytest.mark.parametrize(
    ("name", "backend"),  # both back ends have all at MINI
    in_part(
        [(n, b) for n in polybench.MODULES for b in back_ends.NATIVE],
        lambda n, b: n not in SLOW and list(polybench.MODULES).index(n) % 4 == 3 * back_ends.NATIVE.index(b),
    ),
)
def test_automatic_schedule_small(name: str, backend: str) -> None:
    automatic(name, "SMALL", [backend], exact=False)
