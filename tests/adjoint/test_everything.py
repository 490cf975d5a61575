"""Gradients of PolyBench's kernels, of the library and of random programs, against differences in float64."""

from __future__ import annotations

import pytest
from sweeps import checked, library_case, library_cases, polybench, polybench_cases, random_case

INTEGERS = {"floyd-warshall", "nussinov"}  # of PolyBench
SHORT = 24  # random programs that every run of the tests looks at
LONG = 1000
DOUBLING = 863  # each step that made its tree anew doubled the existential variables of its sets: it did not end
NOWHERE = 826  # its innermost loop cannot run without leaving an array: a statement that fills a tape had no instances
EVERY_FIFTH = list(library_cases.CASES)[::5]
NONE = ("no floating-point argument", "no floating-point result")
UNBOUNDED = "nothing bounds"


def well(said: str) -> bool:
    """Whether a gradient is right, or there cannot be one."""
    return said == "ok" or any(reason in said for reason in (*NONE, UNBOUNDED))


@pytest.mark.parametrize("name", sorted(set(polybench.MODULES) - INTEGERS))
def test_polybench(name: str) -> None:
    (case,) = polybench_cases([name])
    assert checked(case)[0] == "ok"


@pytest.mark.parametrize("name", EVERY_FIFTH)
def test_some_of_the_library(name: str) -> None:
    assert well(checked(library_case(name))[0])


@pytest.mark.long
@pytest.mark.parametrize("name", library_cases.CASES)
def test_the_library(name: str) -> None:
    assert well(checked(library_case(name))[0])


@pytest.mark.parametrize("seed", [*range(SHORT), DOUBLING, NOWHERE])
def test_random_programs(seed: int) -> None:
    assert well(checked(random_case(seed))[0])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_a_thousand_random_programs(seed: int) -> None:
    assert well(checked(random_case(seed))[0])
