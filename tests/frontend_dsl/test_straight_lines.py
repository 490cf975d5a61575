"""Long runs of scalar assignments are one statement, deep expressions are cut; both compute what plain Python does."""

import random
from types import ModuleType

import numpy as np
import pytest
from agreement import agree

from polyc import BoundsError
from polyc.frontend_dsl.straight_lines import DEEP, LONG
from polyc.poly import json_io
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr, StraightLine, walk
from polyc.poly.text import print_scop
from polyc.poly.verify import verify

HEAD = "from polyc import bool_, dims, empty, exp, f32, f64, i32, inout, max, min, op, sqrt\n\nN = dims('N')\n\n\n"


def program(text, folder, name="program"):
    """The operator that a text defines."""
    path = folder / f"{name}.py"
    path.write_text(HEAD + text)
    module = ModuleType(name)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module.f


def lines(scop):
    """The straight lines of a program."""
    return [e for s in scop.statements.values() for e in walk(s.value) if isinstance(e, StraightLine)]


def in_loop(body, before="", after=""):
    """An operator of `X`, `A` (updated) and a result `Y` with this body in a loop."""
    inner = "\n".join(f"        {b}" for b in body)
    return (
        f"@op\ndef f(X: f32[N], Z: f64[N], K: i32[N], A: inout(f32[N])) -> f32[N]:\n    Y = empty((N,), f32)\n{before}"
        f"    for i in range(N):\n{inner}\n{after}    return Y\n"
    )


def arguments(n=37, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.random(n).astype(np.float32), rng.random(n), rng.integers(-5, 6, n).astype(np.int32),
        np.round(rng.random(n) * 8).astype(np.float32),
    )  # fmt: skip


def chain(n):
    return ["s0 = X[i]", *(f"s{k} = s{k - 1} * 0.5 + X[i]" for k in range(1, n))]


def test_a_long_run_is_one_statement_and_a_short_one_is_not(tmp_path):
    short, long = (
        program(in_loop([*chain(n), f"Y[i] = s{n - 1}"]), tmp_path, f"chain{n}").scop() for n in (LONG - 1, LONG)
    )
    assert len(short.statements) == LONG and not lines(short)
    assert len(long.statements) == 1 and len(lines(long)[0].names) == LONG
    for scop in (short, long):
        verify(scop)
        assert json_io.dumps(json_io.loads(json_io.dumps(scop))) == json_io.dumps(scop)
        assert "schedule" in print_scop(scop)


def test_results_agree_everywhere(tmp_path):
    n = LONG + 8
    agree(program(in_loop([*chain(n), f"Y[i] = s{n - 1}"]), tmp_path), *arguments())


RUNS = {
    # an operand is overwritten on the way: what was computed from it before stays a statement
    "overwritten": [*chain(40), "A[i] = s39", *(f"t{k} = A[i] + {k}.0" for k in range(40)),
                    "A[i] = 7.0", "Y[i] = " + " + ".join(f"t{k}" for k in range(40))],
    # a sum over the rows: the update stays a reduction
    "reduction": ["c0 = K[i]", *(f"c{k} = c{k - 1} + K[i]" for k in range(1, 40)), "A[0] += f32(c39)", "Y[i] = 0.0"],
    # values of other types
    "types": ["b0 = Z[i] * 2.0", *(f"b{k} = b{k - 1} * 0.75 + Z[i]" for k in range(1, 40)), "c = K[i] & 3",
              *(f"c{k} = c{k - 1 if k else ''} * 3 & 1023" for k in range(40)), "big = c39 > 5", "small = b39 < 0.5",
              "Y[i] = f32(b39) if big and small else f32(c39)"],
    # under a condition that reads data
    "condition": ["if X[i] > 0.5:", *(f"    {x}" for x in chain(40)), "    Y[i] = s39", "else:", "    Y[i] = A[i]"],
    # used as a subscript: such a scalar stays an array
    "subscript": ["j = K[i] + 5", *chain(40), "Y[i] = X[j] + s39"],
    # used by two: the end of the run is stored
    "twice": [*chain(40), "Y[i] = s39", "A[i] = s39 * 2.0"],
    # two sums of one name: not one assignment each
    "again": ["s = X[i]", *["s = s * 0.5 + X[i]"] * 40, "s = s + A[i]", "Y[i] = s"],
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_runs_of_all_kinds_agree(name, tmp_path):
    operator = program(in_loop(RUNS[name]), tmp_path, name)
    scop = operator.scop(N=37)
    verify(scop)
    assert lines(scop), name
    agree(operator, *arguments(), symbolic=False, back_ends=("interp", "llvm"))
    if name == "reduction":
        assert [s.reduction for s in scop.statements.values() if s.array == "A"] == ["+"]


def random_body(rng):
    """Assignments that read a few scalars before them, stores between them."""
    body, names = [], []
    for k in range(rng.randint(60, 110)):
        known = rng.sample(names, min(len(names), 2)) + ["X[i]", "A[i]", f"{rng.random():.2f}"]
        a, b = rng.choice(known), rng.choice(known)
        chosen = "{a} if {a} > f32({b}) else f32({b}) - 1.0"
        pattern = rng.choice(["{a} * 0.5 + {b}", "max({a}, f32({b}))", chosen, "{a} - {b}"])
        if not a.startswith("0"):
            body.append(f"v{k} = " + pattern.format(a=f"f32({a})", b=b))
            names = [x for x in names if x != a or rng.random() < 0.4] + [f"v{k}"]
        if rng.random() < 0.06:
            body.append(f"A[i] = {names[-1]}" if names else "A[i] = 1.0")
    return [*body, "Y[i] = " + (" + ".join(names[-12:]) or "X[i]")]


@pytest.mark.parametrize("seed", range(4))
def test_random_runs_agree(seed, tmp_path):
    operator = program(in_loop(random_body(random.Random(seed))), tmp_path, f"random{seed}")
    verify(operator.scop(N=19))
    agree(operator, *arguments(19, seed), symbolic=False, back_ends=("interp", "llvm"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 40))
def test_many_random_runs_agree(seed, tmp_path):
    operator = program(in_loop(random_body(random.Random(seed))), tmp_path, f"random{seed}")
    agree(operator, *arguments(19, seed), back_ends=("interp", "llvm", "c"))


def height(e: Expr) -> int:
    return 1 + max(map(height, e.children()), default=0)


def test_deep_expressions_are_cut(tmp_path):
    terms = " + ".join(["X[i] * 0.5", *(["A[i]", "X[i]"] * 80)])
    operator = program(in_loop([f"Y[i] = {terms}", f"A[i] += {terms}"]), tmp_path)
    scop = operator.scop(N=37)
    assert max(height(s.value) for s in scop.statements.values()) <= DEEP + 3
    agree(operator, *arguments(), symbolic=False, back_ends=("interp", "llvm"))


def test_schedules_and_refusals(tmp_path):
    """A run may be scheduled as any statement; it does not become an operand."""
    text = in_loop(
        [*chain(40), "T[i] = s39"], "    T = empty((N,), f32)\n", "    for i in range(N):\n        Y[i] = T[i]\n"
    )
    schedule = program(text, tmp_path).scop(N=64).schedule()
    assert "i.in" in str(schedule.split(schedule.loops[0], 8).tree)
    with pytest.raises(ScheduleError, match="cannot inline 'T': .* writes it by a long run of assignments"):
        schedule.inline("T")


def test_a_gpu_keeps_the_run_in_registers(tmp_path):
    operator = program(in_loop([*chain(40), "Y[i] = s39"]), tmp_path)
    text = operator.compile(target="opencl", N=256).source("opencl")
    assert "float line[1]" in text


def test_accesses_in_a_run_are_checked(tmp_path):
    body = [*chain(20), "g = X[K[i]] + s19", *(f"g{k} = g{k - 1 if k else ''} * 0.5 + A[i]" for k in range(20))]
    operator = program(in_loop([*body, "Y[i] = g19"]), tmp_path)
    assert lines(operator.scop())
    x, z, k, a = arguments()
    k = np.abs(k)
    np.testing.assert_array_equal(operator(x, z, k, a.copy()), operator.python(x, z, k, a.copy()))
    k[5] = 37
    for run in (operator, operator.python):
        with pytest.raises(BoundsError, match="37"):
            run(x, z, k, a.copy())


def test_accesses_in_a_run_under_a_condition_are_checked(tmp_path):
    body = ["if X[i] > 2.0:", *(f"    {x}" for x in chain(20)), "    g = X[i + 1] + s19",
            *(f"    g{k} = g{k - 1 if k else ''} * 0.5 + A[i]" for k in range(20)), "    Y[i] = g19", "else:",
            "    Y[i] = 0.0"]  # fmt: skip
    operator = program(in_loop(body), tmp_path)
    x, z, k, a = arguments()
    x[7] = 3.0
    np.testing.assert_array_equal(operator(x, z, k, a.copy()), operator.python(x, z, k, a.copy()))
    x[36] = 3.0
    with pytest.raises(BoundsError, match="37"):
        operator(x, z, k, a.copy())
