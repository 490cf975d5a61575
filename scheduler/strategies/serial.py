"""Why a loop stays serial, for people: the dependence that it carries, with two instances, or what else is there."""

from __future__ import annotations

from typing import Literal

from polyc.poly.budgets import WITNESS
from polyc.poly.expr import Binary, loads
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.reduction import reads_updated, updates_once
from polyc.poly.scop import Scop, Statement
from polyc.poly.text import print_expr
from polyc.poly.tree import Member
from polyc.poly.witnesses.witness import Witness, make_witness
from polyc.scheduler.questions.coincidence import narrowed, same_time
from polyc.scheduler.strategies.planner import Plan

Obstacle = Literal["carried", "dynamic", "order", "short", "lanes", "diagonal"]
REDUCIBLE = ("+", "-", "*", "min", "max", "and", "or", "&", "|", "^")


def named(stmt: Statement) -> str:
    """A statement's name and its line of the source."""
    span = stmt.span
    return f"{stmt.name} (line {span.line}: {span.text.strip()})" if span is not None and span.text else stmt.name


def why_not(plan: Plan, m: Member, stmts: tuple[str, ...], obstacle: Obstacle) -> str:
    """The reason in words against running loop `m` around `stmts` in lanes."""
    if obstacle == "dynamic":
        return f"the bounds of {m.name} depend on data"
    if obstacle == "order":
        return f"{m.name} adds up floats in an order that reassociate=False keeps"
    if obstacle == "short":
        return f"{m.name} has one iteration at most"
    if obstacle == "diagonal":
        return f"several subscripts of one access move with {m.name}"
    if obstacle == "lanes":
        return f"this machine has no vectors for what {m.name} computes"
    found = carried_by(plan, m)
    if found is None:
        return f"{m.name} carries a dependence"
    text = f"{m.name} carries a dependence: {found.why}"
    ends = [plan.scop.statements[name] for name in dict.fromkeys((found.source[0], found.sink[0]))]
    why = why_no_reduction(plan.scop, ends[0]) if len(ends) == 1 else ""
    return f"{text}; {named(ends[0])} is no reduction: {why}" if why else f"{text}; {', '.join(map(named, ends))}"


def carried_by(plan: Plan, m: Member, updates: bool = False) -> Witness | None:
    """Two instances in different iterations of the loop that keep their order; None where isl takes too long.

    Args:
        updates: or two updates of one element, which may change places but not happen at once.
    """
    try:
        with quota(WITNESS):
            inside = [p for p in plan.pairs() if p.source in m.schedule and p.sink in m.schedule]
            kept = [p for p in inside if updates or not p.reduction]
            for p in narrowed(sorted(kept, key=lambda p: p.reduction), plan.around(m.name)):
                apart = p.map.subtract(same_time(m, p.source, p.sink))
                if not apart.is_empty():
                    return make_witness(plan.scop, apart)
    except QuotaExceeded:
        pass
    return None


def why_no_reduction(scop: Scop, stmt: Statement) -> str:
    """Why an update of an element that it reads is no reduction; "" where it is one, or reads other elements only."""
    value, target = stmt.value, stmt.target
    if stmt.reduction is not None or not any(load == target for load in loads(value)):
        return ""
    if not isinstance(value, Binary) or value.op not in REDUCIBLE:
        return f"it is not {print_expr(target)} and one more operand of +, *, min, max or a bit operation"
    if target not in (value.a, value.b) or (value.a != target and value.op == "-"):
        return f"{print_expr(target)} is inside an operand of {value.op}, not one itself"
    guards = [] if stmt.predicate is None else [stmt.predicate]
    others = [value.b if value.a == target else value.a, *stmt.index, *guards]
    own = next((load for e in others for load in loads(e) if load.array == stmt.array), None)
    if own is not None:
        domain = stmt.domain.intersect_params(scop.context)
        met = reads_updated(target, others, domain)
        if met is not None:
            return f"it reads {print_expr(met)} beside, which may be the updated element"
        if updates_once(target, domain):
            return f"it updates each element once, by {print_expr(own)} among others"
    if value.dtype.is_float and not scop.reassociate:
        return "reassociate=False keeps the order of its floats"
    return ""
