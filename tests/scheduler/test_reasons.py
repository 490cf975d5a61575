"""What `explain` says of serial loops, of reductions that are no contractions, and of threads: the true cause."""

from __future__ import annotations

from typing import Any

import pytest

from polyc import dims, empty, exp, f32, f64, grid, i64, inout, max, op, zeros
from polyc.emit.targets import get
from polyc.graph_driver.bench.operator_time import OperatorTime
from polyc.graph_driver.explaining.explain import explain_schedule, operator_lines
from polyc.scheduler.cost.model import nominal
from polyc.scheduler.cost.shared_loops import shared_loops
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

N, M, K = dims("N M K")
TARGET = get("x86-64-v3")  # what pays depends on the instructions: not on those of the machine at hand


@op
def scaled(X: f32[N, K], W: f32[M, K]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i, j, k in grid(N, M, K):
        R[i, j] += X[i, k] * W[j, k] * 2.0
    return R


@op
def shifted(X: f32[N, K], W: f32[M, K]) -> f32[N, M]:
    R = zeros((N, M), f32)
    for i, j, k in grid(N, M, K):
        R[i, j] += (X[i, k] - 1.0) * W[j, k]
    return R


@op
def gram(X: f32[N, K]) -> f32[N, N]:
    R = zeros((N, N), f32)
    for i, j, k in grid(N, N, K):
        R[i, j] += X[i, k] * X[j, k]
    return R


@op
def subtracted(X: f32[N, K], W: f32[M, K], R: inout(f32[N, M])):
    for i, j, k in grid(N, M, K):
        R[i, j] -= X[i, k] * W[j, k]


@op
def exponentials(X: f32[N, K]) -> f32[N]:
    R = zeros((N,), f32)
    for i, k in grid(N, K):
        R[i] = max(R[i], exp(X[i, k]))
    return R


@op
def diagonals(X: f32[N], W: f32[N], R: inout(f32[N + N])):
    for i, j in grid(N, N):
        R[i + j] += X[i] * W[j]


@op
def guarded(X: f32[N, K], W: f32[K], R: inout(f32[N])):
    for i, k in grid(N, K):
        if X[i, k] > 0.0:
            R[i] += X[i, k] * W[k]


@op
def ragged(P: i64[N], X: f32[N, K], W: f32[K], R: inout(f32[N])):
    for i in range(N):
        for k in range(P[i] % (K + 1)):
            R[i] += X[i, k] * W[k]


@op
def with_neighbour(X: f32[N, K], W: f32[M, K]) -> f32[N, M]:
    R = empty((N, M), f32)
    for i, j in grid(N, M):
        s = f32(0)
        for k in range(K):
            s += X[i, k] * W[j, k]
        R[i, j] = exp(s)
    return R


CONTRACTIONS = [
    (exponentials, "it reduces exp(X[i, k]), which is computed: neither an element nor a product of two"),
    (diagonals, "the subscript i + j of the result is no single loop"),
    (guarded, "it depends on the condition X[i, k] > 0.0"),
    (ragged, "the bounds of loop k depend on data"),
]

PRODUCTS = [
    (scaled, "X[i, k] * 2.0 of S1 computed ahead"),
    (shifted, "X[i, k] - 1.0 of S1 computed ahead"),
    (gram, "X[i, k] of S1 computed ahead"),
    (subtracted, "X[i, k] of S0 computed ahead"),
    (with_neighbour, "loops of their own for the parts of loop i"),
]


def decisions(op_: Any, **sizes: int) -> list[Any]:
    return list(automatic(op_.scop(**sizes), TARGET).decisions)


@pytest.mark.parametrize("op_, reason", CONTRACTIONS, ids=lambda x: getattr(x, "name", ""))
def test_the_rule_that_a_reduction_breaks(op_: Any, reason: str) -> None:
    found = [d for d in decisions(op_) if d.stage == "contraction" and d.outcome == "declined"]
    assert len(found) == 1 and found[0].what == "no contraction" and reason in found[0].reason, found
    assert found[0].subject.startswith("reduction S") and "(line " in found[0].subject


@pytest.mark.parametrize("op_, what", PRODUCTS, ids=lambda x: getattr(x, "name", ""))
def test_what_is_done_for_a_product_to_be_a_contraction(op_: Any, what: str) -> None:
    sizes = dict.fromkeys(op_.scop().params, 64)
    found = [d for d in decisions(op_, **sizes) if d.stage == "contraction"]
    assert [d.outcome for d in found] == ["done"] * len(found)
    assert found[0].what == what and "accumulators" in found[-1].figures


@pytest.mark.parametrize("sizes", [{"N": 4, "M": 64, "K": 64}, {"N": 64, "M": 4, "K": 64}])
def test_factors_that_are_used_a_few_times_stay_where_they_are(sizes: dict[str, int]) -> None:
    steps = {s.name for s in automatic(scaled.scop(**sizes), TARGET).trace}
    assert "outline" not in steps


@op
def recurrence(A: inout(f64[N])):
    for i in range(1, N):
        A[i] = A[i - 1] * 0.5 + A[i]


@op
def smoothed(X: f32[N]) -> f32[N]:
    R = empty((N,), f32)
    s = X[0]
    for i in range(N):
        s = s * f32(0.9) + X[i]
        R[i] = s
    return R


@op
def in_place(A: inout(f64[N, N])):
    for i in range(N):
        for j in range(i):
            for k in range(j + 1):
                A[i, j] -= A[i, k] * A[j, k]


@op
def halved(A: inout(f64[1]), X: f64[N]):
    for i in range(N):
        A[0] = A[0] / X[i]


@op(reassociate=False)
def ordered(X: f32[K], R: inout(f32[1])):
    for k in range(K):
        R[0] += X[k]


@op
def scattered(I: i64[N], H: inout(f64[M])):
    for i in range(N):
        H[I[i] % M] += 1.0


SERIAL = [
    (recurrence, "i carries a dependence: S0[i=2] reads A[1], which S0[i=1] writes before it (RAW)",
     "is no reduction: it updates each element once, by A[i - 1] among others"),
    (smoothed, "which S1[i=0] writes before it (RAW)", "is no reduction: s is inside an operand of +, not one itself"),
    (in_place, "k carries a dependence: ", "is no reduction: it reads A[i, k] beside, which may be the updated"),
    (halved, "S0[i=1] reads A[0], which S0[i=0] writes", "is no reduction: it is not A[0] and one more operand"),
    (ordered, "S0[k=1] reads R[0], which S0[k=0] writes", "is no reduction: reassociate=False keeps the order"),
    (scattered, "i in ", "less than 10 % gained"),
]  # fmt: skip


@pytest.mark.parametrize("op_, first, then", SERIAL, ids=lambda x: getattr(x, "name", ""))
def test_what_keeps_a_loop_serial(op_: Any, first: str, then: str) -> None:
    found = [d.reason for d in decisions(op_) if d.what == "stays serial"]
    assert found and any(first in r and then in r for r in found), found


def test_contractions_have_no_reasons_against_them() -> None:
    @op
    def plain(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
        C = zeros((M, N), f32)
        for i, j, k in grid(M, N, K):
            C[i, j] += A[i, k] * B[k, j]
        return C

    assert not [d for d in decisions(plain) if d.what == "no contraction"]


@op
def stepped(A: inout(f64[N]), B: inout(f64[N]), *, steps: int = 7):
    for t in range(steps):
        for i in range(1, N - 1):
            B[i] = A[i - 1] + A[i] + A[i + 1]
        for i in range(1, N - 1):
            A[i] = B[i - 1] + B[i] + B[i + 1]


def test_what_threads_share_and_between_which_barriers() -> None:
    start = Schedule.start(stepped.scop(N=1002)).parallel("i").parallel("i_1")
    machine = nominal(TARGET)
    found = shared_loops(start, TARGET, machine, 2)
    assert [(x.loop, x.entries, x.iterations) for x in found] == [("i", 7, 1000), ("i_1", 7, 1000)]
    assert found[0].seconds is not None and found[0].seconds > 0 and found[0].barrier == machine.entry / machine.hertz
    assert sum(7 * (x.seconds or 0) for x in found) == pytest.approx(_alone(start), rel=1e-6)
    assert shared_loops(start, TARGET, machine, 1) == []
    tiled = Schedule.start(stepped.scop(N=1002)).split("i", 64).parallel("i.out")
    (only,) = shared_loops(tiled, TARGET, machine, 4)
    assert (only.loop, only.threads, only.entries, only.iterations) == ("i.out", 4, 7, 16)


def _alone(schedule: Schedule) -> float:
    from polyc.scheduler.cost.model import predict
    from polyc.scheduler.cost.work import work_of

    work = work_of(schedule.original, TARGET)
    assert work is not None
    return predict(work, nominal(TARGET)).seconds


@pytest.mark.parametrize("threads, sizes, text", [
    (2, {"N": 1002}, "threads: loop i: 2 threads share it, 1,000 iterations, entered 7 times; predicted "),
    (2, {}, "threads: loop i: 2 threads share it; how much work lies between two barriers depends on the sizes"),
    (1, {}, "threads: one, no loop is shared"),
])  # fmt: skip
def test_explain_says_what_threads_do(threads: int, sizes: dict[str, int], text: str) -> None:
    schedule = Schedule.start(stepped.scop(**sizes)).parallel("i")
    data = explain_schedule(schedule, TARGET, sizes, OperatorTime(None, None, threads))
    assert any(line.startswith(text) for line in operator_lines(data)), list(operator_lines(data))


def test_explain_says_that_nothing_is_shared() -> None:
    data = explain_schedule(automatic(recurrence.scop(), TARGET, 2), TARGET, {}, OperatorTime(None, None, 2))
    assert "threads: no loop is shared among 2" in list(operator_lines(data))
