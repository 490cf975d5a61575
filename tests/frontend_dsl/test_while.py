"""`while`, `break`, `continue` and the `else` of loops: programs as people write them, on every CPU back end."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import agree, oracle
from back_ends import interpret

import polyc
from polyc import bool_, dims, empty, f32, f64, i32, inout, op, zeros
from polyc.emit.loop_ir.loops import For, walk
from polyc.emit.lowering.lower import lower
from polyc.emit.targets import host
from polyc.scheduler.strategies.auto import automatic

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
import executors
import simt

N, M, P = dims("N M P")
rng = np.random.default_rng(5)


def ends(operator: Any, **given: Any) -> set[str]:
    """The loops of the automatic schedule's code that may end before their bound."""
    s = operator.schedule(**given)
    fn = lower(s.scop, s.tree, "k", host())
    return {loop.loop for loop in walk(fn.body) if isinstance(loop, For) and loop.until is not None}


@op
def mandelbrot(cr: f64[N], ci: f64[M]) -> i32[M, N]:
    out = empty((M, N), i32)
    for i in range(M):
        for j in range(N):
            x = 0.0 * cr[j]
            y = 0.0 * cr[j]
            n = 0
            while x * x + y * y <= 4.0 and n < 60:
                x, y = x * x - y * y + cr[j], 2.0 * x * y + ci[i]
                n += 1
            out[i, j] = n
    return out


@op
def gcd(A: i32[N], B: i32[N]) -> i32[N]:
    out = empty((N,), i32)
    for i in range(N):
        a = A[i]
        b = B[i]
        while b != 0:
            a, b = b, a % b
        out[i] = a
    return out


@op
def newton(A: f64[N]) -> f64[N]:
    out = empty((N,), f64)
    for i in range(N):
        x = A[i]
        while True:
            y = 0.5 * (x + A[i] / x)
            if abs(y - x) <= 1e-12 * x:
                break
            x = y
        out[i] = y
    return out


@op
def collatz(A: i32[N]) -> i32[N]:
    """A `continue` in a `while` comes to its test."""
    out = empty((N,), i32)
    for i in range(N):
        a = A[i]
        steps = 0
        while a != 1:
            steps += 1
            if a % 2 == 0:
                a = a // 2
                continue
            a = 3 * a + 1
        out[i] = steps
    return out


@op
def sorted_place(A: f32[N], v: f32[M]) -> i32[M]:
    """Binary search: the subscript is a local scalar."""
    out = empty((M,), i32)
    for k in range(M):
        lo = 0
        hi = A.shape[0]
        while lo < hi:
            mid = (lo + hi) // 2
            if A[mid] < v[k]:
                lo = mid + 1
            else:
                hi = mid
        out[k] = lo
    return out


@op
def bisection(c: f64[N]) -> f64[N]:
    """The root of x * x * x - c between 0 and 2, as a helper function."""

    def f(x, c):
        return x * x * x - c

    out = empty((N,), f64)
    for i in range(N):
        lo = f64(0.0)
        hi = f64(2.0)
        while hi - lo > 1e-9:
            mid = 0.5 * (lo + hi)
            if f(mid, c[i]) < 0.0:
                lo = mid
            else:
                hi = mid
        out[i] = lo
    return out


@op
def first_index(A: i32[N, M], v: i32) -> i32[N]:
    out = empty((N,), i32)
    for i in range(N):
        out[i] = -1
        for j in range(M):
            if A[i, j] == v:
                out[i] = j
                break
    return out


@op
def csr_find(ptr: i32[N + 1], cols: i32[P], want: i32[N]) -> i32[N]:
    """A search in a row of a sparse matrix; the `else` of the loop is for those that find nothing."""
    out = empty((N,), i32)
    for i in range(N):
        for k in range(ptr[i], ptr[i + 1]):
            if cols[k] == want[i]:
                out[i] = k
                break
        else:
            out[i] = -1
    return out


@op
def sieve(out: inout(i32[N])):
    """A loop that writes where data say; a `break` of the outer loop by its own bound."""
    for p in range(2, N):
        if p * p >= N:
            break
        if out[p] == 0:
            continue
        m = p * p
        while m < N:
            out[m] = 0
            m += p


@op
def skipped_rows(A: f32[N, M]) -> f32[N]:
    out = zeros((N,), f32)
    for i in range(N):
        if A[i, 0] < 0.0:
            continue
        s = f32(0.0)
        for j in range(M):
            if A[i, j] > 5.0:
                if j > 2:
                    break
                s += 10.0
                continue
            s += A[i, j]
        else:
            s = s * 2.0
        if s > 20.0:
            break
        out[i] = s
    return out


@op
def nested(A: i32[N, M]) -> i32[N]:
    """`while` in `for` in `while`, with jumps of each."""
    out = zeros((N,), i32)
    i = 0
    while i < N:
        total = i32(0)
        for j in range(M):
            a = A[i, j]
            while a > 0:
                if a == 7:
                    break
                total += 1
                a = a // 2
            else:
                if total > 9:
                    break
            if total % 5 == 4:
                continue
            total += 1
        out[i] = total
        i += 1
    return out


@op
def rounds(x: inout(f32[N])):
    """Python runs a `while` of which it knows the end."""
    step = 1
    while step < 8:
        for j in range(0, 16 - step, 2 * step):
            x[j] += x[j + step]
        step *= 2


@op
def taps(A: f32[N]) -> f32[N]:
    """Jumps out of loops that are written out: by constants, and by data."""
    out = empty((N,), f32)
    for i in range(N):
        s = f32(0.0)
        for w in (1.0, 2.0, 3.0, 4.0):
            if w == 4.0:
                break
            if A[i] > w:
                s += w
                continue
            if A[i] < -w:
                break
            s -= 1.0
        out[i] = s
    return out


@op
def triangle(A: f32[N, M]) -> f32[N]:
    """A jump that depends on loop variables only."""
    out = zeros((N,), f32)
    for i in range(N):
        for j in range(M):
            if j > i:
                break
            if j == 1:
                continue
            out[i] += A[i, j]
    return out


def helper(x, limit):
    while x > limit:
        x = x * 0.5
    return x


@op
def halved(A: f32[N]) -> f32[N]:
    out = empty((N,), f32)
    for i in range(N):
        out[i] = helper(A[i], 1.0) + helper(A[i], 0.25)
    return out


@op(reassociate=False)
def power_iteration(A: f64[N, N], x: inout(f64[N])) -> i32[1]:
    """Whole loop nests inside a `while` that is not inside a loop."""
    count = zeros((1,), i32)
    y = empty((N,), f64)
    change = f64(1.0)
    while change > 1e-6:
        for i in range(N):
            y[i] = 0.0
            for j in range(N):
                y[i] += A[i, j] * x[j]
        top = y[0]
        for i in range(N):
            top = max(top, y[i])
        change = f64(0.0)
        for i in range(N):
            d = abs(y[i] / top - x[i])
            change = max(change, d)
            x[i] = y[i] / top
        count[0] += 1
    return count


@op
def under_conditions(A: i32[N, M], x: inout(f32[N])):
    """Loops that data leave out altogether: their flags count as set."""
    for i in range(N):
        if A[i, 0] > 2:
            a = A[i, 1]
            while a > 0:
                if A[i, 2] == 1:
                    for j in range(M):
                        if A[i, j] > 6:
                            break
                        while x[i] > 0.5 and a > j:
                            x[i] *= 0.5
                a -= 1
                x[i] += 1.0


@op
def declared_inside(A: f32[N]) -> f32[N]:
    """Arrays and loop variables of a body with jumps of inner loops."""
    out = zeros((N,), f32)
    k = 0
    while k < N:
        T = zeros((3,), f32)
        for i in range(3):
            if A[k] > i:
                break
            T[i] = A[k] * i
        w = 0
        while w < 2:
            w += 1
            if A[k] < -1.0:
                break
            for i in range(3):
                T[i] += 1.0
        for i in range(3):
            out[k] += T[i]
        k += 1
    return out


def root(x):
    """Endless for x below 0."""
    y = x
    while abs(y * y - x) > 1e-9 * x:
        y = 0.5 * (y + x / y)
    return y


@op
def arms(A: f64[N]) -> f64[N]:
    """Functions in expressions are called where Python calls them."""
    out = empty((N,), f64)
    for i in range(N):
        out[i] = root(A[i]) if A[i] > 0.0 else -1.0
        if A[i] > 0.0 and root(A[i]) > 1.0 and i > 0:
            out[i] += 10.0
        if i == 0 or A[i] < 0.0 or root(A[i]) < 1.5:
            out[i] += 100.0
        if i > 1:
            out[i] += root(f64(i)) if i > 2 else 0.5
    return out


@op
def many_rounds(A: inout(f64[N])):
    """Python knows the end; 1000 rounds are a loop all the same."""
    k = 0
    while k < 1000:
        A[0] += 1.0
        k += 1


@op
def bitonic(x: inout(f32[8])):
    k = 2
    while k <= 8:
        j = k // 2
        while j > 0:
            for i in range(8):
                other = i ^ j
                if other > i:
                    if (i & k == 0) == (x[i] > x[other]):
                        x[i], x[other] = x[other], x[i]
            j //= 2
        k *= 2


@op
def suppressed(boxes: f32[N, 4], scores: f32[N], *, limit: float = 0.2) -> i32[N]:
    """Non-maximum suppression, one of the published examples of TVM's hybrid script."""
    keep = empty((N,), i32)
    for i in range(N):
        keep[i] = 1
    for i in range(N):
        if keep[i] == 0 or scores[i] <= 0.1:
            continue
        for j in range(i + 1, N):
            if keep[j] == 0:
                continue
            w = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
            h = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            if w <= 0.0 or h <= 0.0:
                continue
            one = (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
            two = (boxes[j, 2] - boxes[j, 0]) * (boxes[j, 3] - boxes[j, 1])
            if w * h / (one + two - w * h) > limit:
                keep[j] = 0
    return keep


def ints(*shape: int, low: int = 0, high: int = 9) -> np.ndarray:
    return rng.integers(low, high, shape).astype(np.int32)


CASES = {
    mandelbrot: (np.linspace(-2, 0.6, 7), np.linspace(-1, 1, 5)),
    gcd: (ints(9, high=100), ints(9, high=60)),
    newton: (rng.random(6) * 50 + 0.1,),
    collatz: (np.arange(1, 12, dtype=np.int32),),
    sorted_place: (np.sort(rng.random(13, np.float32)), rng.random(7, np.float32)),
    bisection: (rng.random(5) * 7,),
    first_index: (ints(6, 8), np.int32(3)),
    csr_find: (np.array([0, 2, 2, 5, 9], np.int32), ints(9, high=4), ints(4, high=4)),
    sieve: (np.ones(50, np.int32),),
    skipped_rows: (ints(8, 6, low=-2, high=8).astype(np.float32),),
    nested: (ints(5, 4, high=20),),
    rounds: (rng.integers(-5, 6, 16).astype(np.float32),),
    taps: (rng.integers(-5, 6, 11).astype(np.float32),),
    triangle: (rng.integers(-5, 6, (5, 4)).astype(np.float32),),
    halved: (rng.random(5, np.float32) * 20,),
    arms: (rng.random(6) * 8 - 3,),
    many_rounds: (np.zeros(2),),
    bitonic: (rng.random(8, np.float32),),
    suppressed: (
        np.concatenate([rng.random((9, 2)) * 3, rng.random((9, 2)) * 3 + 2], 1).astype(np.float32),
        rng.random(9, np.float32),
    ),
    under_conditions: (ints(9, 4), rng.random(9, np.float32) * 4),
    declared_inside: (rng.integers(-3, 4, 9).astype(np.float32),),
    power_iteration: (rng.random((4, 4)) + 0.1, np.ones(4)),
}


@pytest.mark.parametrize("program", CASES, ids=lambda p: p.name)
def test_on_every_back_end(program: Any) -> None:
    agree(program, *CASES[program])


def test_rows_stay_independent() -> None:
    for program in (mandelbrot, gcd, newton, collatz, sorted_place, bisection, first_index, csr_find):
        s = program.scop().schedule()
        s.parallel(s.loops[0])


def test_the_loop_that_is_left_is_serial() -> None:
    for step in ("parallel", "vectorize"):
        with pytest.raises(polyc.IllegalSchedule, match="left"):
            getattr(halved.scop().schedule(), step)("again")


def test_code_ends_the_loop() -> None:
    assert ends(mandelbrot) == {"again"}
    assert ends(first_index) == {"j"}
    assert ends(taps) == set()  # written out: nothing to end
    assert ends(nested) == {"again_1", "j"}  # the outermost one counts: it is a loop over a range


def test_vector_lanes_end_together() -> None:
    """Eight rows at a time: a lane that has come to its end waits for the others."""
    s = mandelbrot.scop().schedule().vectorize("j", 8)
    kernel = mandelbrot.compile(schedule=s)
    args = CASES[mandelbrot]
    assert np.array_equal(kernel(*args), mandelbrot.python(*args))
    assert "<8 x double>" in kernel.source("llvm")


def test_more_than_two_to_the_31_iterations() -> None:
    @op
    def program(n: polyc.i64) -> polyc.i64[1]:
        out = empty((1,), polyc.i64)
        a = polyc.i64(0)
        while a < n:
            a += 1
        out[0] = a
        return out

    assert program(2**31 + 5)[0] == 2**31 + 5


def test_what_a_loop_assigns() -> None:
    """Assigned where the loop is left is assigned behind it, and nothing else."""

    @op
    def good(A: f32[N]) -> f32[1]:
        out = empty((1,), f32)
        i = 0
        while True:
            found = A[i]
            i += 1
            if found > 3.0 or i >= N:
                break
        out[0] = found
        return out

    agree(good, np.arange(7, dtype=np.float32))

    @op
    def bad(A: f32[N]) -> f32[1]:
        out = empty((1,), f32)
        i = 0
        while i < N:
            found = A[i]
            i += 1
        out[0] = found
        return out

    with pytest.raises(polyc.DslError, match="found may be used before it is assigned"):
        bad.scop()


def test_what_never_ends_is_refused() -> None:
    @op
    def program(A: inout(f32[N])):
        while True:
            A[0] += 1.0

    with pytest.raises(polyc.DslError, match="nothing in this loop ends it"):
        program.scop()


@pytest.mark.parametrize("program", (mandelbrot, csr_find, skipped_rows, nested, power_iteration), ids=lambda p: p.name)
def test_on_a_gpu(program: Any) -> None:
    """A thread runs its loops to their ends; what data end outside of all free loops is one thread's."""
    args = CASES[program]
    shapes = {p.name: a.shape for p, a in zip(program.signature.params, args, strict=True) if isinstance(a, np.ndarray)}
    schedule = automatic(program.scop(**shapes), simt.TARGET)
    assert simt.agree(schedule, [copied(a) for a in args], oracle(program, args, {}), 1e-12) == ""


def test_gpu_text_ends_the_loop() -> None:
    schedule = automatic(mandelbrot.scop(N=7, M=5), simt.TARGET)
    fn = simt.finished(schedule.scop, schedule.tree)
    args = [copied(a) for a in CASES[mandelbrot]]
    got = executors.on_shim(schedule.scop, fn, args)
    assert np.array_equal(got[-1], mandelbrot.python(*CASES[mandelbrot]))


def copied(a: Any) -> Any:
    return a.copy() if isinstance(a, np.ndarray) else a


@op
def left_from_within(A: inout(f32[N]), limit: i32) -> i32[1]:
    """The `break` of the outer `while` comes before the inner one, which waits for its flag."""
    out = zeros((1,), i32)
    i = 0
    while i < N:
        i += 1
        if A[i - 1] < 0.0:
            break
        j = 0
        while j < limit:
            j += 1
            if j == i:
                continue
            A[i - 1] += 1.0
        out[0] += j
    return out


@pytest.mark.parametrize("limit", [0, 3])
def test_a_buffer_of_a_flag_never_keeps_a_loop_from_ending(limit: int) -> None:
    """Random program 25392: a copy of the flag was waited for in a loop that only the flag itself ends."""
    scop = left_from_within.scop()
    start = scop.schedule()
    args = [np.array([1, 2, -1, 4, 5], np.float32), np.int32(limit)]
    wanted = [args[0].copy()]
    wanted.append(left_from_within.python(wanted[0], limit))
    flags = [a.name for a in scop.arrays.values() if a.kind == "local" and a.dtype == bool_]
    refused = []
    for array in flags:
        for loop in start.loops:
            try:
                s = start.promote(array, loop)
            except polyc.ScheduleError as error:
                refused.append(str(error))
                continue
            got = interpret(s.scop, s.tree, args)
            assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True)), (array, loop)
    assert any("decides what runs inside loop" in text for text in refused), refused
