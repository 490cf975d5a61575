"""What a loop waits for is added last, and the result is what the source says but for rounding."""

from __future__ import annotations

from typing import Any

import back_ends
import numpy as np
import pytest

from polyc import dims, f64, inout, op
from polyc.emit.compile import compile_kernel
from polyc.emit.loop_ir.loops import For, Function, Store, walk
from polyc.poly.expr import Binary, Call, Load
from polyc.poly.expr import walk as walk_expr

N = dims("N")


@op(fast_math=True)
def first(a: inout(f64[N]), b: f64[N], c: f64[N]):
    for i in range(1, N):
        a[i] = a[i - 1] + b[i] - c[i] + 2.0


@op(fast_math=True)
def subtracted_in_brackets(a: inout(f64[N]), b: f64[N], c: f64[N]):
    for i in range(1, N):
        a[i] = b[i] - ((a[i - 1] - c[i]) - b[i] * c[i])


@op(fast_math=True)
def backwards(a: inout(f64[N]), b: f64[N], c: f64[N]):
    for i in range(N - 1):
        a[N - 2 - i] = a[N - 1 - i] * b[i] * c[i] + c[i]


@op(fast_math=True)
def two_distances(a: inout(f64[N]), b: f64[N], c: f64[N]):
    for i in range(2, N):
        a[i] = a[i - 1] * b[i] + a[i] + a[i - 2] * c[i]


@op(fast_math=True)
def in_two_statements(a: inout(f64[N]), b: inout(f64[N]), c: f64[N]):
    for i in range(1, N):
        a[i] = b[i - 1] + c[i] * c[i]
        b[i] = a[i] + c[i] + b[i] * c[i]


@op(fast_math=True)
def under_a_condition(a: inout(f64[N]), b: inout(f64[N]), c: f64[N]):
    for i in range(1, N):
        if c[i] > 0.0:
            b[i] = b[i - 1] + (c[i] - a[i]) * (b[i - 1] + a[i])


@op(fast_math=True)
def what_was_stored_waits(a: inout(f64[N]), b: inout(f64[N]), c: f64[N]):
    for i in range(1, N):
        a[i] = b[i - 1] + c[i] * c[i]
        b[i] = c[i] - (a[i] + 0.5 * c[i])


@op(fast_math=True)
def what_was_stored_changes(a: inout(f64[N]), b: inout(f64[N]), c: inout(f64[N])):
    for i in range(1, N):
        a[i] = b[i - 1] + c[i]
        c[i] = 0.5 * c[i]
        b[i] = 0.5 * a[i] - c[i] + a[i]
        if c[i] > 0.1:
            a[i] = b[i] - 0.25 * c[i]
        b[i] = a[i] * 0.5 + c[i] - a[i]


@op(fast_math=True)
def one_element(a: inout(f64[N]), b: inout(f64[N]), c: inout(f64[1])):
    for i in range(1, N):
        b[i] = c[0] * 0.5 + b[i - 1] * 0.25
        c[0] = a[i] - b[i]
        a[i] = b[i] + c[0] + a[i - 1] * 0.25


CASES = (
    what_was_stored_waits,
    what_was_stored_changes,
    one_element,
    first,
    subtracted_in_brackets,
    backwards,
    two_distances,
    in_two_statements,
    under_a_condition,
)


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("operator", CASES, ids=lambda o: o.fn.__name__)
def test_results(operator: Any, backend: str) -> None:
    scop = operator.scop(N=61)
    rng = np.random.default_rng()
    args = [rng.uniform(-0.7, 0.7, int(scop.arrays[n].shape[0].value)) for n in scop.args]
    expected = [x.copy() for x in args]
    operator.python(*expected)
    kept = [x for n, x in zip(scop.args, expected, strict=True) if scop.arrays[n].kind == "inout"]
    for got, wanted in zip(back_ends.execute(scop, scop.tree, args, backend), kept, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-11)


def after_the_awaited(operator: Any) -> int:
    """Most operations of a statement that take a value of an earlier iteration as operand, directly or not."""
    scop = operator.scop(N=61)
    fn: Function = compile_kernel(scop, scop.tree, name="k", checks=False).function
    loop = next(s for s in walk(fn.body) if isinstance(s, For))
    stores = [s for s in walk(loop.body) if isinstance(s, Store)]
    written = {s.array: s.index for s in stores}

    def awaited(e: Any) -> bool:
        return any(isinstance(x, Load) and x.array in written and x.index != written[x.array] for x in walk_expr(e))

    return max(
        sum(isinstance(e, Binary | Call) and e.dtype is f64 and awaited(e) for e in walk_expr(s.value)) for s in stores
    )


ONE = (first, what_was_stored_waits, subtracted_in_brackets, backwards)


@pytest.mark.parametrize("operator", ONE, ids=lambda o: o.fn.__name__)
def test_one_operation_waits(operator: Any) -> None:
    assert after_the_awaited(operator) == 1


def test_source_order_without_fast_math() -> None:
    plain = op(first.fn)
    assert after_the_awaited(plain) == 3
