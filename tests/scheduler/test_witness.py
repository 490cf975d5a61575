"""Witness scripts, detailed messages, guarded steps and exact conditions on known programs."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import pickle
import random
import sys
from dataclasses import replace
from pathlib import Path

import back_ends
import gallery
import numpy as np
import pytest
import scop_builder as sb
from random_programs import generate
from random_schedules import PROPOSALS, apply

import polyc
from polyc import dims, f64, inout, op
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.forms.conditions import Condition
from polyc.poly.legality import is_legal, legal_sizes
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.rewriting.specialise import specialise, specialise_tree
from polyc.poly.scop import Scop
from polyc.poly.tree import Node
from polyc.scheduler.schedule import Schedule

N, M = dims("N M")

# tests/poly is not on the path: its name is that of a package
_spec = importlib.util.spec_from_file_location("poly_brute", Path(__file__).parents[1] / "poly" / "brute.py")
assert _spec is not None and _spec.loader is not None
brute = importlib.util.module_from_spec(_spec)
sys.modules["poly_brute"] = brute
_spec.loader.exec_module(brute)


@op(reassociate=False)
def diagonal(A: inout(f64[N + 1, M + 1])):
    for i in range(N):
        for j in range(M):
            A[i + 1, j] = A[i, j + 1] * 0.5 + 1.0


@op(reassociate=False)
def stages(A: inout(f64[N]), B: inout(f64[N])):
    for i in range(N):
        A[i] = A[i] * 2.0
    for j in range(N - 1):
        B[j] = A[j + 1] + 1.0


def refused(scop: Scop, name: str, **args) -> IllegalSchedule:
    with pytest.raises(IllegalSchedule) as error:
        getattr(Schedule.start(scop), name)(**args)
    return error.value


def run(error: IllegalSchedule) -> str:
    assert error.witness is not None
    scope: dict = {"__name__": "witness"}
    exec(error.witness.script(), scope)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert scope["main"]() == 0
    return out.getvalue()


# ---- messages ----------------------------------------------------------------------------------


def test_the_two_renderings() -> None:
    error = refused(diagonal.scop(), "interchange", a="i", b="j")
    line = str(error)
    assert "\n" not in line and "it would be legal if M <= 1 or N <= 1" in line and "test_witness.py" in line
    text = error.detailed()
    assert "sizes:    N=2, M=2" in text and "conflict: S0[i=1, j=0] reads A[1, 1]" in text and "values:   A[" in text
    assert "legal if: M <= 1 or N <= 1" in text and "repair:   after reverse('j') it is legal" in text
    terse = replace(Schedule.start(diagonal.scop()), terse=True)
    with pytest.raises(IllegalSchedule) as short:
        terse.interchange("i", "j")
    assert "legal if" not in str(short.value) and "S0[i=1, j=0] reads A[1, 1]" in str(short.value)


def test_the_page_shows_what_is_printed() -> None:
    """A difference means: python tests/scheduler/gallery.py > docs/schedules.md"""
    page = Path(__file__).parents[2] / "docs" / "schedules.md"
    assert "\n".join(gallery.refusals()).strip() in page.read_text()


def test_nothing_is_worked_out_before_it_is_asked_for() -> None:
    error = refused(diagonal.scop(), "interchange", a="i", b="j")
    assert error.violation is not None
    assert not {"witness", "legal_if"} & set(vars(error.violation)) and "repair" not in vars(error)


def test_a_refusal_travels_between_processes() -> None:
    error = refused(diagonal.scop(), "interchange", a="i", b="j")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, IllegalSchedule) and str(again) == str(error) and again.witness is None


# ---- scripts -----------------------------------------------------------------------------------


def test_the_values_are_those_of_the_script() -> None:
    error = refused(diagonal.scop(), "interchange", a="i", b="j")
    assert error.witness is not None and error.witness.values is not None
    values = error.witness.values
    assert not values.tags and values.when == "at the end" and values.array == "A"
    printed = run(error)
    assert f"own order: {values.right}" in printed and f"refused schedule: {values.wrong}" in printed


def test_equal_stores_are_shown_by_tags() -> None:
    scop = sb.build("same", ["N"], {"A": "2"}, [sb.loop("i", "0", "N", [sb.stmt("A[0] = 1.0")])])
    error = refused(scop, "reverse", loop="i")
    assert error.witness is not None and error.witness.values is not None and error.witness.values.tags
    assert "writes a tag" in error.witness.script()
    run(error)


def test_an_overwritten_difference_is_shown_in_its_moment() -> None:
    scop = sb.build("dead", ["N"], {"A": "N", "C": "N"}, [
        sb.loop("i", "0", "N", [sb.stmt("A[i] = 2.0"), sb.stmt("C[i] = A[i]")]),
        sb.loop("j", "0", "N", [sb.stmt("C[j] = 0.0")]),
    ])  # fmt: skip
    error = refused(scop, "reorder_statements", order=["S1", "S0"])
    assert error.witness is not None and error.witness.values is not None
    assert error.witness.values.when == "when S1[i=0] reads it" and not error.witness.values.tags
    run(error)


def test_a_race_of_a_reduction_loses_an_update() -> None:
    error = refused(sb.matmul(), "parallel", loop="k")
    assert "both read, then both write" in run(error)


def test_contraction_that_loses_a_value() -> None:
    scop = sb.build("back", ["N"], {"A": "N", "C": "N", "t": "N"}, [
        sb.loop("i", "0", "N", [sb.stmt("t[i] = A[i]"), sb.stmt("C[i] = t[i - 1]", where="i >= 1")]),
    ], local=["t"])  # fmt: skip
    error = refused(scop, "contract", array="t")
    assert "the refused buffer 't_buf'" in run(error) and str(error.legal_if) == "N <= 1"


def test_large_constant_sizes_show_only_what_matters() -> None:
    error = refused(specialise(sb.lu(), {"N": 300}), "reverse", loop="k")
    assert error.witness is not None
    text = error.witness.script()
    assert len(text) < 20_000 and "Only the instances that touch" in text
    run(error)


# ---- legal if ----------------------------------------------------------------------------------


def exact(scop: Scop, tree: Node, upto: int) -> None:
    """`legal_sizes` and its printed form against enumeration of all instances."""
    condition = Condition(legal_sizes(scop, tree), scop.context)
    text = str(condition)
    for values in itertools.product(range(1, upto + 1), repeat=len(scop.params)):
        sizes = dict(zip(scop.params, values, strict=True))
        if not Condition(scop.context, scop.context).holds(**sizes):
            continue
        small, new = specialise(scop, sizes), specialise_tree(tree, sizes)
        legal = brute.is_legal(small, new)
        assert legal == condition.holds(**sizes) == is_legal(small, new), (text, sizes)
        assert legal == (text == "always" or text != "never" and eval(text, {}, sizes))


TRANSFORMED = [
    (sb.seidel, "tile", {"loops": ["t", "i"], "sizes": [2, 3]}),
    (sb.seidel, "reverse", {"loop": "t"}),
    (sb.jacobi, "fuse", {"a": "i", "b": "j", "shift": 0}),
    (sb.lu, "reverse", {"loop": "k"}),
    (sb.lu, "reverse", {"loop": "i"}),
    (sb.lu, "parallel", {"loop": "k"}),
    (sb.matmul, "parallel", {"loop": "k"}),
]


@pytest.mark.parametrize(("make", "name", "args"), TRANSFORMED, ids=[f"{m.__name__}-{n}" for m, n, _ in TRANSFORMED])
def test_the_condition_is_exact(make, name: str, args: dict) -> None:
    scop = make()
    wild = getattr(replace(Schedule.start(scop), _deferred=True), name)(**args)
    exact(scop, wild.tree, {1: 8, 2: 5, 3: 3}[len(scop.params)])


def random_tree(seed: int) -> tuple[Scop, Node] | None:
    """A random program that brute force can enumerate, under an unchecked random transformation."""
    scop = generate(seed).operator().scop()
    if len(scop.statements) > 5 or any(s.dynamic for s in scop.statements.values()):
        return None
    r = random.Random(seed)
    schedule = replace(Schedule.start(scop), _deferred=True)
    name = r.choice(("tile", "interchange", "reverse", "skew", "shift", "fuse", "distribute", "parallel", "vectorize"))
    try:
        return scop, apply(schedule, name, PROPOSALS[name](schedule, r)).tree
    except ScheduleError:
        return None


def upto(scop: Scop) -> int:
    """Sizes up to which enumeration, which looks at all pairs of instances, takes seconds at most."""
    deep = max(len(s.iters) for s in scop.statements.values())
    return 3 if len(scop.params) > 1 else 12 if deep < 3 else 6


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_conditions_of_random_programs_are_exact_up_to_twelve(first: int) -> None:
    for seed in range(first, first + 20):
        found = random_tree(seed)
        if found is None:
            continue
        with contextlib.suppress(QuotaExceeded), quota(20_000_000):
            exact(*found, upto(found[0]))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[N, T] -> { : N <= 2 or T <= 1 }", "N <= 2 or T <= 1"),
        ("[N, T] -> { : N <= 2; : N >= 3 and T <= 1 }", "N <= 2 or T <= 1"),
        ("[N, T] -> { : N >= 1 }", "always"),
        ("[N, T] -> { : 1 = 0 }", "never"),
        ("[N, T] -> { : N = T }", "T == N"),
        ("[N, T] -> { : 2N <= T + 3 and N >= 4 }", "2*N <= T + 3 and N >= 4"),
        ("[N, T] -> { : N mod 3 = 0 }", "N == 3 * (N // 3)"),
        ("[N, T] -> { : (N <= 2 and T <= 7) or T <= 1 }", "T <= 1 or (N <= 2 and T <= 7)"),
    ],
)
def test_conditions_read_well(text: str, shown: str) -> None:
    import islpy as isl

    context = isl.Set("[N, T] -> { : N >= 1 and T >= 1 }")
    assert str(Condition(isl.Set(text), context)) == shown


# ---- guarded -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", back_ends.ALL)
@pytest.mark.parametrize(
    ("operator", "name", "args"),
    [
        (diagonal, "interchange", {"a": "i", "b": "j"}),
        (diagonal, "tile", {"loops": ["i", "j"], "sizes": [2, 2]}),
        (diagonal, "parallel", {"loop": "i"}),
        (stages, "fuse", {"a": "i", "b": "j"}),
    ],
)
def test_a_guarded_step_is_right_on_both_sides(backend: str, operator, name: str, args: dict) -> None:
    start = operator.scop().schedule()
    with pytest.raises(IllegalSchedule) as error:
        getattr(start, name)(**args)
    schedule = getattr(start, name)(**args, guarded=True)
    assert schedule.trace[-1].args["guarded"] and Schedule.replay(start.scop, schedule.save()).trace == schedule.trace
    names = [n for n in schedule.loops if n.startswith("else.")]
    assert names and len(set(schedule.loops)) == len(schedule.loops)
    sides = set()
    for n, m in ((1, 4), (2, 1), (2, 2), (5, 6)):
        sides.add(error.value.legal_if.holds(N=n, M=m))
        rng = np.random.default_rng(n)
        given = [rng.random((n + 1, m + 1))] if operator is diagonal else [rng.random(n), rng.random(n)]
        expected = [a.copy() for a in given]
        operator.python(*expected)
        assert back_ends.difference(back_ends.execute(schedule.scop, schedule.tree, given, backend), expected) == ""
    assert sides == {True, False}


def test_a_guarded_step_that_is_legal_or_never_legal_stays_as_it_is() -> None:
    plain, guarded = (Schedule.start(sb.matmul()).interchange("i", "j", guarded=g) for g in (False, True))
    assert str(plain) == str(guarded)
    with pytest.raises(IllegalSchedule, match="is illegal"):
        Schedule.start(sb.seidel()).reverse("i", guarded=True)


def test_transformations_go_on_inside_a_guard() -> None:
    s = diagonal.scop().schedule().interchange("i", "j", guarded=True).tile(["j", "i"], [4, 4])
    s = s.vectorize("else.j", 4, guarded=True)
    assert "else.else.j" not in s.loops and {"j.out", "else.j"} <= set(s.loops)
    assert polyc.IllegalSchedule is IllegalSchedule


def test_a_guarded_fusion_needs_no_shift() -> None:
    scop = sb.build("mirror", ["N"], {"A": "N", "C": "N"}, [
        sb.loop("i", "0", "N", [sb.stmt("A[i] = 2.0")]), sb.loop("j", "0", "N", [sb.stmt("C[j] = A[N - 1 - j]")]),
    ])  # fmt: skip
    with pytest.raises(IllegalSchedule, match="no constant shift"):
        Schedule.start(scop).fuse("i", "j", shift="auto")
    guarded = Schedule.start(scop).fuse("i", "j", shift="auto", guarded=True)
    assert guarded.loops == ("i", "else.i", "else.j") and "if N <= 1" in str(guarded)
