"""Stores in some lanes only: a branch where none may run, and whole vectors where masked stores are slow."""

from __future__ import annotations

from dataclasses import replace

import back_ends
import numpy as np
import pytest
from scops import TARGET

from polyc import dims, f32, i32, inout, op
from polyc.emit.loop_ir.loops import For, Function, HReduce, If, Store, walk
from polyc.emit.lowering.lower import lower
from polyc.poly.target import Target

N, M = dims("N M")
NARROW = replace(TARGET, vector_bits=256)
WIDE = replace(TARGET, vector_bits=512)


@op(reassociate=False)
def two_arrays(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N]):
    for i in range(N):
        if c[i] > 0.5:
            a[i] = a[i] + c[i] * d[i]
            b[i] = b[i] + d[i] * d[i]


@op(reassociate=False)
def nested(a: f32[N], b: f32[N], c: inout(f32[N]), d: f32[N], e: f32[N]):
    for i in range(N):
        if a[i] < 0.0:
            if b[i] > a[i]:
                c[i] = c[i] + d[i] * e[i]


@op(reassociate=False)
def both_ways(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], e: f32[N]):
    for i in range(N):
        if b[i] > 0.0:
            a[i] = a[i] + c[i] * d[i]
        else:
            a[i] = c[i] * e[i] - d[i]


@op(reassociate=False)
def light(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        if b[i] > 0.0:
            a[i] = 1.0


@op(reassociate=False)
def changes_what_it_asks(a: inout(f32[N]), b: inout(f32[N]), c: f32[N]):
    for i in range(N):
        if a[i] > 0.0:
            a[i] = a[i] - c[i]
            b[i] = b[i] + a[i] * c[i]
        else:
            b[i] = a[i]


@op(reassociate=False)
def below_the_diagonal(a: inout(f32[N, N]), b: f32[N], c: f32[N]):
    for i in range(N):
        for j in range(i):
            if c[j] > 0.0:
                a[i, j] = a[i, j] + b[j] * c[j]


@op(reassociate=False)
def whole_numbers(a: inout(i32[N]), b: i32[N], c: i32[N]):
    for i in range(N):
        if b[i] > 0:
            a[i] = a[i] + b[i] * c[i]
        a[i] = a[i] + 1


CASES = {
    two_arrays: "i",
    nested: "i",
    both_ways: "i",
    light: "i",
    changes_what_it_asks: "i",
    below_the_diagonal: "j",
    whole_numbers: "i",
}


def finished(operator: object, target: Target, n: int = 1024, kinds: tuple[tuple[str, str], ...] = ()) -> Function:
    schedule = operator.scop(N=n).schedule()
    for step, loop in kinds:
        schedule = getattr(schedule, step)(loop)
    schedule = schedule.vectorize(CASES[operator], 8)
    return lower(schedule.scop, schedule.tree, "f", target)


def stores(fn: Function) -> list[Store]:
    return [s for s in walk(fn.body) if isinstance(s, Store)]


def branches(fn: Function) -> list[If]:
    return [s for s in walk(fn.body) if isinstance(s, If) and isinstance(s.cond, HReduce)]


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("share", (0.0, 0.03, 0.5, 1.0))
@pytest.mark.parametrize("n", (64, 83))
@pytest.mark.parametrize("operator", CASES, ids=lambda o: o.fn.__name__)
def test_results(operator: object, n: int, share: float, backend: str) -> None:
    scop = operator.scop(N=n)
    schedule = scop.schedule().vectorize(CASES[operator], 8)
    rng = np.random.default_rng()

    def values(name: str) -> np.ndarray:
        shape = (n,) * len(scop.arrays[name].shape)
        size = np.abs(rng.uniform(0.6, 9, shape)) * np.where(rng.uniform(size=shape) < share, 1, -1)
        return size.astype(scop.arrays[name].dtype.np)

    args = [values(name) for name in scop.args]
    expected = [x.copy() for x in args]
    operator.python(*expected)
    got = back_ends.execute(scop, schedule.tree, args, backend)
    kept = [x for name, x in zip(scop.args, expected, strict=True) if scop.arrays[name].kind == "inout"]
    assert back_ends.difference(got, kept) == ""


@pytest.mark.parametrize("operator", (two_arrays, nested))
@pytest.mark.parametrize("target", (NARROW, WIDE), ids=("narrow", "wide"))
def test_idle_vectors_load_and_store_nothing(operator: object, target: Target) -> None:
    fn = finished(operator, target)
    (branch,) = branches(fn)
    assert [s for s in walk(branch.then) if isinstance(s, Store)] == stores(fn)


def test_little_work_has_no_branch() -> None:
    assert not branches(finished(light, NARROW))


def test_lanes_that_do_something_else_have_no_branch() -> None:
    assert not branches(finished(both_ways, WIDE))


@pytest.mark.parametrize("operator", (two_arrays, light, whole_numbers))
def test_whole_vectors_are_stored_where_masked_stores_are_slow(operator: object) -> None:
    assert all(s.mask is None for s in stores(finished(operator, NARROW)))
    assert any(s.mask is not None for s in stores(finished(operator, WIDE)))


def test_what_is_beyond_an_array_is_not_stored() -> None:
    tail = [s for s in stores(finished(two_arrays, NARROW, 1021)) if s.mask is not None]
    assert [s.array for s in tail] == ["a", "b"]


def test_loops_that_threads_share_store_what_is_theirs() -> None:
    fn = finished(below_the_diagonal, NARROW, kinds=(("parallel", "i"),))
    inside = [s for f in walk(fn.body) if isinstance(f, For) and f.kind == "parallel" for s in walk(f.body)]
    vectors = [s for s in inside if isinstance(s, Store) and s.index[-1].lanes > 1]
    assert vectors and all(s.mask is not None for s in vectors)
