"""Generated loops run in the lexicographic order of their schedule: traces against time maps."""

from __future__ import annotations

import islpy as isl
import pytest
from mutant_oracle import Case
from proof_cases import by_hand, of_polybench, of_random_programs

from examples import polybench
from polyc.emit.interpreter import interp
from polyc.poly.tree import time_maps

Instance = tuple[str, tuple[int, ...]]


def times(case: Case, sizes: dict[str, int]) -> dict[Instance, tuple[int, ...]]:
    """The schedule tree's time of every instance at these sizes, by enumeration."""
    out: dict[Instance, tuple[int, ...]] = {}
    for m in time_maps(case.tree, {n: s.domain for n, s in case.scop.statements.items()}):
        for name, value in sizes.items():
            at = m.find_dim_by_name(isl.dim_type.param, name)
            m = m if at < 0 else m.fix_val(isl.dim_type.param, at, isl.Val(value))
        stmt, depth = m.get_tuple_name(isl.dim_type.in_), m.dim(isl.dim_type.in_)

        def add(point: isl.Point, stmt: str = stmt, depth: int = depth) -> None:
            count = point.get_space().dim(isl.dim_type.set)
            values = [point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(count)]
            key = stmt, tuple(values[:depth])
            assert key not in out
            out[key] = tuple(values[depth:])

        m.wrap().flatten().foreach_point(add)
    return out


def check(case: Case) -> None:
    for run in case.runs:
        planned = times(case, run.sizes)
        seen: list[Instance] = []
        arrays = {n: a.copy() for n, a in run.arrays.items()}
        interp.run(case.fn, arrays, run.sizes, lambda name, point, seen=seen: seen.append((name, point)))
        if not any(s.predicate is not None for s in case.scop.statements.values()):
            assert sorted(seen) == sorted(planned), case.name
        order = [planned[x] for x in seen]
        assert order == sorted(order), f"{case.name}: not in the order of the schedule"
        assert len(set(order)) == len(order), f"{case.name}: two instances at one time"


def test_by_hand() -> None:
    for case in by_hand():
        check(case)


QUICK = ("gemm", "jacobi-1d", "cholesky", "trmm", "gramschmidt", "nussinov")
NAMES = [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in polybench.MODULES]


@pytest.mark.parametrize("name", NAMES)
def test_polybench(name: str) -> None:
    for case in of_polybench([name], 0):
        check(case)


def test_random_programs() -> None:
    for case in of_random_programs(range(10)):
        check(case)
