"""Scops for whatever rows of an argument: the same when given the rows they had, one for all that differ in rows."""

import random
from dataclasses import replace

import islpy as isl
import numpy as np
import pytest
from execute import execute
from random_scops import random_scop

from polyc import empty, f32, grid, op
from polyc.poly import json_io
from polyc.poly.access import accesses, array_elements
from polyc.poly.expr import const_int
from polyc.poly.rewriting.first_rows import any_first_rows
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop


def slices(length: int, first: int, count: int = 2) -> Scop:
    """Sums of neighbours in rows `first` to `first + count` of `length`."""

    @op
    def part(X: f32[length, 5], B: f32[5]) -> f32[count, 5]:
        Y = empty((count, 5), f32)
        for i, j in grid(count, 5):
            Y[i, j] = X[i + first, j] + X[i + (first + 1), j] * B[j]
        return Y

    return part.scop()


def text(scop: Scop) -> str:
    return json_io.dumps(scop)


@pytest.mark.parametrize(("length", "first"), [(9, 0), (9, 1), (9, 5), (1024, 997), (4096, 17)])
def test_slices_at_any_row_are_one_scop(length: int, first: int) -> None:
    shared, rows = any_first_rows(slices(length, first))
    assert rows == {"first_X": first} and shared.params == ("first_X",)
    same, other = any_first_rows(slices(12, 5))
    assert text(shared) == text(same) and other == {"first_X": 5}
    longer = any_first_rows(slices(length, first, 3))[0]
    assert text(longer) != text(shared)
    X, B = np.random.default_rng().standard_normal((length, 5)).astype("f"), np.ones(5, np.float32)
    want = X[first : first + 2] + X[first + 1 : first + 3]
    args = {"X": X[: first + 3].copy(), "B": B, "Y": np.zeros((2, 5), np.float32)}  # ends with the last row read
    assert np.array_equal(execute(specialise(shared, rows), args)["Y"], want)


def test_whole_arguments_stay_as_they_are() -> None:
    scop = slices(5, 0, 4)
    assert any_first_rows(scop) == (scop, {})


def _rows(elements: isl.Set) -> isl.Set:
    """The first subscripts of elements: random Scops may be outside in others."""
    return elements.project_out(isl.dim_type.set, 1, elements.dim(isl.dim_type.set) - 1)


def test_random_scops_given_their_rows_touch_what_they_did() -> None:
    r = random.Random()
    changed = 0
    for _ in range(150):
        scop = random_scop(r)
        written = {s.array for s in scop.statements.values()}
        length = const_int(r.randint(4, 9))
        arrays = {
            n: a if n in written or not a.shape else replace(a, kind="in", shape=(length, *a.shape[1:]))
            for n, a in scop.arrays.items()
        }
        scop = replace(scop, arrays=arrays)
        shared, rows = any_first_rows(scop)
        if not rows:
            continue
        changed += 1
        back = specialise(shared, rows)
        for old, new in zip(accesses(scop), accesses(back), strict=True):
            assert (old.stmt, old.array, old.write, old.must) == (new.stmt, new.array, new.write, new.must)
            assert old.map.is_equal(new.map)
        for name in {n.removeprefix("first_") for n in rows}:
            inside = _rows(array_elements(shared.arrays[name], shared.params))
            assert all(_rows(a.map.range()).is_subset(inside) for a in accesses(shared) if a.array == name)
    assert changed


def test_rows_outside_stay_to_be_found() -> None:
    scop = slices(9, 3)
    x = scop.arrays["X"]
    short = replace(scop, arrays={**scop.arrays, "X": replace(x, shape=(const_int(5), *x.shape[1:]))})
    assert any_first_rows(scop)[1] and any_first_rows(short) == (short, {})
