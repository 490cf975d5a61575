"""Work, memory traffic, footprints and reuse of a schedule: formulas as text and as programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import lcm
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.html.affine import Program, condition
from polyc.poly.access import accesses
from polyc.poly.closed_forms.formula import Formula
from polyc.poly.closed_forms.polynomial import Atom, Floor, Polynomial
from polyc.poly.errors import PolycError
from polyc.poly.tree import Band, Member, Node, walk
from polyc.poly.words import first_line

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule

TOTALS = ("instances", "flops", "loads", "stores", "bytes", "traffic")
LONG = 400  # characters of a formula
MOST_PAIRS = 24  # of a loop and an array; the page says what was left out


def cost_data(schedule: Schedule) -> dict[str, Any]:
    """`totals` of the whole operator; per statement; per loop (in one iteration of it) the flops, and
    for each array the elements touched and how often each is touched."""
    scop = schedule.scop
    touched = {s: dict.fromkeys(a.array for a in accesses(scop) if a.stmt == s) for s in scop.statements}
    loops: list[dict[str, Any]] = []
    pairs, left_out = 0, 0
    for member in _members(schedule.tree):
        arrays = list(dict.fromkeys(a for s in member.schedule for a in touched[s] if scop.arrays[a].shape))
        if pairs + len(arrays) > MOST_PAIRS:
            left_out += 1
            continue
        found = _loop(schedule, member, arrays)
        if found["arrays"]:
            loops.append(found)
        else:
            left_out += 1
        # Nobody reads such a formula; those of the loops inside are longer and take long to find.
        pairs = MOST_PAIRS if _longest(found) > LONG else pairs + len(arrays)
    return {
        "sizes": list(scop.params),
        "bytes": {a.name: a.dtype.bytes for a in scop.arrays.values()},
        "totals": {what: _formula(partial(schedule.count, what)) for what in TOTALS},
        "intensity": _text(lambda: str(schedule.intensity())),
        "statements": [_statement(schedule, s) for s in scop.statements],
        "loops": loops,
        "leftOut": left_out,
    }  # fmt: skip


def _statement(schedule: Schedule, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "instances": _formula(lambda: schedule.count("instances", statements=name)),
        "flops": _formula(lambda: schedule.count("flops", statements=name)),
    }


def _members(tree: Node) -> list[Member]:
    return [m for n in walk(tree) if isinstance(n, Band) for m in n.members]


def _longest(loop: dict[str, Any]) -> int:
    """Characters of the longest formula."""
    return max(len(f.get("text", "")) for f in (loop["flops"], *(a["elements"] for a in loop["arrays"])))


def _loop(schedule: Schedule, member: Member, arrays: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": member.name,
        "kind": member.kind,
        "flops": _formula(lambda: schedule.count("flops", at=member.name)),
        "arrays": [],
    }
    for a in arrays:
        if _longest(found) <= LONG:
            found["arrays"].append(_reuse(schedule, member.name, a))
    return found


def _reuse(schedule: Schedule, loop: str, array: str) -> dict[str, Any]:
    """The footprint is the lower half of the reuse: counted once."""
    try:
        ratio = schedule.reuse(array, at=loop)
    except PolycError as error:
        return {"array": array, "elements": {"error": first_line(error)}, "reuse": None}
    return {"array": array, "elements": _data(ratio.under), "reuse": str(ratio)}


def _text(make: Callable[[], str]) -> str | None:
    try:
        return make()
    except PolycError:
        return None


def _formula(make: Callable[[], Formula]) -> dict[str, Any]:
    """Text, names of its sizes, and the program of a formula; or why there is none."""
    try:
        return _data(make())
    except PolycError as error:  # too hard to count, or it depends on data
        return {"error": first_line(error)}


def _data(f: Formula) -> dict[str, Any]:
    program: Program = 0
    for piece in reversed(f.pieces):
        program = ["?", condition(piece.where), polynomial(piece.value), program]
    return {"text": str(f), "exact": f.exact, "why": f.why, "names": list(f.names), "program": program}


def polynomial(p: Polynomial) -> Program:
    """The value of a quasi-polynomial, scaled to whole coefficients and divided at the end."""
    unit = lcm(*(c.denominator for c in p.terms.values())) if p.terms else 1
    total: Program = 0
    for monomial, coefficient in p.terms.items():
        product: Program = int(coefficient * unit)
        for atom, power in monomial:
            for _ in range(power):
                product = ["*", product, _atom(atom)]
        total = product if total == 0 else ["+", total, product]
    return total if unit == 1 else ["//", total, unit]


def _atom(atom: Atom) -> Program:
    if isinstance(atom, str):
        return atom
    if isinstance(atom, Floor):
        return ["//", polynomial(Polynomial.affine(dict(atom.terms), atom.constant)), atom.divisor]
    first, *rest = (polynomial(Polynomial.affine(dict(t), c)) for t, c in atom.args)
    for other in rest:
        first = [atom.which, first, other]
    return first
