"""Many transformations together, and programs that are too much for isl."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import scop_builder as sb
from random_programs import generate
from random_schedules import PROPOSALS, WEIGHTS, apply

from polyc.emit.compile import source_text
from polyc.emit.loop_ir.rewrite import map_exprs
from polyc.emit.lowering.lower import lower
from polyc.emit.targets import host
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Binary, Expr, rewrite
from polyc.poly.json_io import dump_tree
from polyc.poly.legality import check
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies import auto
from polyc.scheduler.strategies.auto import automatic


def ten_steps(seed: int) -> Schedule:
    """Ten random legal transformations of a random program."""
    r = random.Random(seed)
    s = replace(Schedule.start(generate(seed).operator(reassociate=True).scop()), terse=True)
    for _ in range(80):
        if len(s.trace) == 10 or not s.loops:
            break
        name = r.choices(list(PROPOSALS), [WEIGHTS.get(n, 1) for n in PROPOSALS])[0]
        try:
            with quota(500_000):
                s = apply(s, name, PROPOSALS[name](s, r))
        except (ScheduleError, QuotaExceeded):
            continue
    return s


def code(s: Schedule) -> str:
    """The C text. The operands of a minimum are put in an order, since isl's depends on how it came to a set."""
    fn = lower(s.scop, s.tree, "kernel", host())
    body = map_exprs(fn.body, lambda e: rewrite(e, in_order))
    return source_text(replace(fn, body=body), host(), "c")


def in_order(e: Expr) -> Expr:
    if isinstance(e, Binary) and e.op in ("min", "max"):
        a, b = sorted((e.a, e.b), key=repr)
        return replace(e, a=a, b=b)
    return e


def check_composition(seed: int) -> int:
    """The number of steps; one `set_order` of the final tree gives the same code as all of them."""
    s = ten_steps(seed)
    at_once = Schedule.start(s.scop).set_order(s.tree)
    from_text = Schedule.start(s.scop).set_order(dump_tree(s.tree))
    assert code(s) == code(at_once) == code(from_text), s.save()
    return len(s.trace)


def test_ten_steps_are_one_set_order_of_the_final_tree() -> None:
    assert sum(check_composition(seed) == 10 for seed in (1, 4, 8, 13)) >= 2


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 200, 10))
def test_ten_steps_are_one_set_order_of_the_final_tree_at_length(first: int) -> None:
    for seed in range(first, first + 10):
        check_composition(seed)


def thirty_statements() -> Scop:
    """Thirty statements in one deep nest that read each other's skewed and folded neighbourhoods."""
    names = [f"A{k}" for k in range(6)]
    body = []
    for m in range(30):
        a, b, c = names[m % 6], names[(m + 1) % 6], names[(5 * m + 3) % 6]
        there = f"(i + 2 * k) // 3 + (j + l) % {2 + m % 3}, (3 * j + l + {m}) // {2 + m % 5}"
        body.append(sb.stmt(f"{a}[i + j - k // 2 + l, j + (k + l) // 3] = {b}[{there}] * {c}[2 * j % 7 + i, k + l]"))
    nest = sb.loop("k", "j // 2", "i + j", [sb.loop("l", "k // 3", "N - j", body)])
    nest = sb.loop("i", "1", "N", [sb.loop("j", "i", "N", [nest])])
    return sb.build("pathological", ["N"], {a: "9*N+20,9*N+20" for a in names}, [nest], lo=8)


def check_fallback() -> None:
    """The automatic schedule ends within its quota; it falls back and says so, and what stands is legal."""
    scop = thirty_statements()
    assert len(scop.statements) == 30
    s = automatic(scop, host(), threads=2)
    assert any("isl quota used up" in note for note in s.notes), s.notes
    if s.trace:
        check(s.scop, s.tree)
    assert Schedule.start(scop).loops == ("i", "j", "k", "l")  # isl works again


def test_thirty_statements_end_within_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "AUTOMATIC", 500_000)
    check_fallback()


@pytest.mark.long
def test_thirty_statements_end_within_a_larger_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "AUTOMATIC", 5_000_000)
    check_fallback()
