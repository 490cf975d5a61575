"""Numbers that differ from lane to lane: conversions to floats, gathers by them, neighbours that lanes share."""

from __future__ import annotations

from dataclasses import replace

import back_ends
import numpy as np
import pytest
from scops import TARGET

from polyc import dims, f32, f64, i32, inout, op
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.lowering.lower import lower

N, M = dims("N M")


@op(reassociate=False)
def counted(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] = a[i] + b[i] * f32(3 * i - 7)


@op(reassociate=False)
def counted_far(a: inout(f64[N]), b: f64[N]):
    for i in range(N):
        a[i] = a[i] + b[i] * f64(i * 300000007 - 5)


@op(reassociate=False)
def counted_in_rows(a: inout(f32[4, N]), b: f32[4, N]):
    for r in range(4):
        for i in range(N):
            a[r, i] = a[r, i] + b[r, i] * f32(1000 * r - 2 * i + 3) + f32(i) * f32(i + 5) * f32((i + 2) // 3)


@op(reassociate=False)
def halves(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] = a[i] + b[i // 2]


@op(reassociate=False)
def thirds(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] = a[i] * b[i // 3] + b[i % 5]


@op(reassociate=False)
def quarters_of_rows(a: inout(f32[4, N]), b: f32[4, N]):
    for r in range(4):
        for i in range(N):
            a[r, i] = a[r, i] + b[r, i // 4] * f32(i % 7)


@op(reassociate=False)
def by_numbers(a: inout(f32[N]), b: f32[N], where: i32[N]):
    for i in range(N):
        a[i] = a[i] + b[where[i]] * b[N - 1 - where[i]]


@op(reassociate=False)
def by_numbers_under_conditions(a: inout(f32[N]), b: f32[N], where: i32[N]):
    for i in range(N):
        if a[i] > 0.0:
            a[i] = a[i] + b[where[i]]
        else:
            a[i] = b[where[i]] if b[i] > 0.0 else b[i]


CASES = (
    by_numbers,
    by_numbers_under_conditions,
    counted,
    counted_far,
    counted_in_rows,
    halves,
    thirds,
    quarters_of_rows,
)


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize("n", (64, 99))
@pytest.mark.parametrize("operator", CASES, ids=lambda o: o.fn.__name__)
def test_results(operator: object, n: int, backend: str) -> None:
    scop = operator.scop(N=n)
    schedule = scop.schedule().vectorize("i", 8)
    rng = np.random.default_rng()
    shapes = [(4, n) if operator in (quarters_of_rows, counted_in_rows) else (n,)] * 2
    args = [rng.uniform(-1, 1, shape).astype(scop.arrays[name].dtype.np) for name, shape in zip(scop.args, shapes)]
    if "where" in scop.args:
        args.append(rng.integers(0, n, n).astype(np.int32))
    expected = [x.copy() for x in args]
    operator.python(*expected)
    got = back_ends.execute(scop, schedule.tree, args, backend)
    assert back_ends.difference(got, expected[:1]) == ""


def text(operator: object, n: int, bits: int = 256) -> str:
    scop = operator.scop(N=n)
    target = replace(TARGET, vector_bits=bits)
    return to_llvm(lower(scop, scop.schedule().vectorize("i", 8).tree, "f", target), target)


def test_what_fits_is_converted_from_words() -> None:
    assert "sitofp <8 x i32>" in text(counted, 1024) and "sitofp <8 x i64>" not in text(counted, 1024)
    assert "sitofp <8 x i64>" in text(counted_far, 1024)


def test_what_a_loop_counts_up_stays_in_a_register() -> None:
    """Numbers at a constant distance share one; no number is copied to lanes inside the loop."""
    for operator, kept in ((counted, 1), (counted_in_rows, 2)):
        made = text(operator, 1024)
        loop = made[made.rindex("head:", 0, made.index("sitofp")) :].partition("br label")[0]
        assert made.count("phi <8 x i32>") == kept
        assert "insertelement <8 x i32>" not in loop


def test_innermost_vector_loops_begin_a_line_of_code() -> None:
    made = text(counted_in_rows, 1024)
    assert made.count('"llvm.loop.align", i32 64') == 1 and made.count("distinct !{") == 2


def test_lanes_that_share_neighbours_gather_nothing() -> None:
    assert "gather" not in text(halves, 1024) and "load <4 x float>" in text(halves, 1024)
    assert "gather" in text(thirds, 1024)


def test_numbers_in_memory_are_not_taken_out_of_vectors() -> None:
    assert "gather" not in text(by_numbers, 1024) and "gather" in text(by_numbers, 1024, 512)
