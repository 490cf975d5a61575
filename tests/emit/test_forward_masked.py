"""What a masked store writes goes to later loads through registers."""

from __future__ import annotations

from dataclasses import replace

import back_ends
import numpy as np
import pytest
from scops import TARGET

from polyc import dims, f32, inout, op
from polyc.emit.loop_ir.loops import Function, Store, VLoad, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.emit.lowering.lower import lower
from polyc.poly.expr import walk as walk_expr

N = dims("N")


@op(reassociate=False)
def either(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        if b[i] > 0.0:
            a[i] = a[i] + b[i]
        else:
            a[i] = a[i] * c[i]


@op(reassociate=False)
def changes_its_condition(a: inout(f32[N]), b: inout(f32[N]), c: f32[N]):
    for i in range(N):
        if a[i] > 0.0:
            b[i] = b[i] + c[i]
            a[i] = b[i] - 1.0
            if a[i] > b[i] * c[i]:
                b[i] = a[i] * 2.0
        a[i] = a[i] + b[i]


@op(reassociate=False)
def reads_another_row(a: inout(f32[N]), b: inout(f32[2, N]), c: f32[N]):
    for i in range(N):
        if c[i] > 0.0:
            b[0, i] = c[i] + 1.0
        a[i] = b[1, i] + c[i]
        if a[i] > 0.0:
            b[0, i] = b[0, i] * 2.0


CASES = (either, changes_its_condition, reads_another_row)


def masked_stores(fn: Function) -> list[Store]:
    return [s for s in walk(fn.body) if isinstance(s, Store) and s.mask is not None]


def with_masked_stores(operator: object) -> Function:
    """The finished loops for a machine that has them."""
    scop = operator.scop(N=1024)
    return lower(scop, scop.schedule().vectorize("i", 16).tree, "f", replace(TARGET, vector_bits=512))


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("operator", CASES, ids=lambda o: o.fn.__name__)
def test_results(operator: object, backend: str) -> None:
    scop = operator.scop(N=83)
    schedule = scop.schedule().vectorize("i", 16)
    rng = np.random.default_rng()
    args = [rng.uniform(-1, 1, (2, 83) if len(scop.arrays[n].shape) == 2 else 83).astype("f") for n in scop.args]
    expected = [x.copy() for x in args]
    operator.python(*expected)
    got = back_ends.execute(scop, schedule.tree, args, backend)
    kept = [x for n, x in zip(scop.args, expected, strict=True) if scop.arrays[n].kind == "inout"]
    assert back_ends.difference(got, kept) == ""


def test_two_branches_are_one_store_and_read_no_store() -> None:
    fn = with_masked_stores(either)
    (store,) = masked_stores(fn)
    stored = {(store.array, store.index)}
    after = False
    for s in walk(fn.body):
        read = {(e.array, e.index) for x in stmt_exprs(s) for e in walk_expr(x) if isinstance(e, VLoad)}
        assert not (after and read & stored)
        after |= s is store


def test_a_store_stays_before_a_load_of_the_array_that_it_might_meet() -> None:
    fn = with_masked_stores(reads_another_row)
    assert [s.array for s in masked_stores(fn)] == ["b", "b"]
