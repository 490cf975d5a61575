"""What would make a refused step legal: the smallest shift, skew or reversal, from the distances.

Loops that are to form a band (`tile`, `interchange`, `permute`, `unroll_and_jam`) need non-negative
distances in each of them; a parallel loop needs distance zero, or a skewed loop around it that
carries everything. Both are solved exactly in `polyc.scheduler.questions.distances`; nests that keep the statements
of a stencil apart are merged first. A repair is offered only after the legality check has accepted
it, with its factors and shifts lowered as far as the check allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from polyc.poly.errors import ScheduleError
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass
from polyc.poly.tree import loop_names
from polyc.scheduler.questions.distances import Adjustment, distances, pairs_below, smallest_adjustment
from polyc.scheduler.step import Step
from polyc.scheduler.transformations import fusion
from polyc.scheduler.transformations.merging import merge_nests
from polyc.scheduler.transformations.tree_edit import Chain, chain_of, locate, outer_members, together

OPERATIONS = 5_000_000  # isl operations for one search


@dataclass(frozen=True)
class Repair:
    """Steps that do what a refused step wanted, legally: the wanted one, perhaps changed, is the last."""

    steps: tuple[Step, ...]
    text: str

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def apply(self, schedule: Any) -> Any:
        """The steps on the schedule that refused, with one check of the result."""
        return schedule.batch(*((s.name, s.args) for s in self.steps))


def find(before: Any, step: Step) -> Repair | None:
    """The smallest repair of `step`, refused on the schedule `before`; None when none was found."""
    try:
        with quota(OPERATIONS):
            for steps in _candidates(before, step):
                if _accepted(before, steps):
                    steps = _lowered(before, steps)
                    return Repair(tuple(steps), _words(step, steps))
    except QuotaExceeded:
        return None  # a hint is not worth more
    return None


def _accepted(before: Any, steps: Sequence[Step]) -> bool:
    try:
        replace(before, terse=True).batch(*((s.name, s.args) for s in steps))
    except ScheduleError:
        return False
    return True


def _candidates(before: Any, step: Step) -> Iterator[list[Step]]:
    """What may be tried, smallest change first."""
    args = step.args
    if step.name == "fuse" and not args["shift"]:
        amount = fusion.smallest_shift(before.scop, before.tree, args["a"], args["b"])
        if amount:
            yield [Step("fuse", {**args, "shift": amount})]
    elif step.name in ("tile", "permute"):
        yield from _band(before, step, args["loops"])
    elif step.name == "interchange":
        yield from _band(before, step, [args["a"], args["b"]])
    elif step.name == "unroll_and_jam":
        inner = chain_of(before.tree, args["loop"]).names()
        yield from _band(before, step, list(inner[inner.index(args["loop"]) :]))
    elif step.name in ("parallel", "vectorize"):
        yield from _alone(before, step, args["loop"])
    elif step.name == "distribute":
        yield from _turned(before, step)
    elif step.name == "reorder_statements":
        yield from _delayed(before, step)


# ---- loops that form a band ----------------------------------------------------------------------


def _band(before: Any, step: Step, loops: Sequence[str]) -> Iterator[list[Step]]:
    """Adjust the loops where they are; else merge the nests first; else tile the outer ones by 1."""
    found = _adjusted(before, loops)
    if found is not None:
        yield [*found, step]
    merged = merge_nests(before, loops)
    if merged is not None:
        names = [merged.names.get(n, n) for n in loops]
        found = _adjusted(merged.schedule, names)
        if found is not None:
            yield [*merged.steps, *found, Step(step.name, _renamed(step.args, merged.names))]
    if step.name == "tile":
        order = [n for n in loop_names(before.tree) if n in loops]
        for count in range(1, len(order)):
            sizes = [1 if n in order[:count] else s for n, s in zip(loops, step.args["sizes"], strict=True)]
            if sizes != step.args["sizes"]:
                yield [Step("tile", {**step.args, "sizes": sizes})]


def _renamed(args: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    def new(value: Any) -> Any:
        if isinstance(value, str):
            return names.get(value, value)
        return [new(v) for v in value] if isinstance(value, list) else value

    return {k: new(v) for k, v in args.items()}


def _adjusted(before: Any, loops: Sequence[str]) -> list[Step] | None:
    """Steps after which the loops form a band with non-negative distances; None if no constants do."""
    try:
        chain = chain_of(together(before.scop, before.tree, loops), loops[0])
    except ScheduleError:
        return None
    places = sorted(chain.position(n) for n in loops)
    names = [m.name for m in chain.members[places[0] : places[-1] + 1]]
    solved = _solve(before, chain, names)
    if solved is None:
        return None
    steps: list[Step] = []
    for name, a in solved.items():
        if a.sign < 0:
            steps.append(Step("reverse", {"loop": name}))
        steps += [Step("skew", {"loop": name, "by": by, "factor": f}) for by, f in a.factors.items()]
        for amount in sorted(set(a.shifts.values())):
            chosen = [s for s, v in a.shifts.items() if v == amount]
            steps.append(Step("shift", {"loop": name, "amount": amount, "statements": chosen}))
    return steps


def _solve(before: Any, chain: Chain, names: Sequence[str]) -> dict[str, Adjustment] | None:
    """The adjustment of each loop, outermost first; each builds on those before it."""
    first = chain.position(names[0])
    above = [*outer_members(chain.path), *chain.members[:first]]
    statements = list(chain.members[first].schedule)
    pairs = pairs_below(before.scop, above, statements)
    schedules: list[dict[str, Any]] = []
    found: dict[str, Adjustment] = {}
    for k, name in enumerate(names):
        own = dict(chain.members[first + k].schedule)
        a = smallest_adjustment(
            distances(pairs, [*schedules, own]), names[:k], statements, signs=(1,) if k == 0 else (1, -1)
        )
        if a is None:
            return None
        found[name] = a
        schedules.append(_apply(own, a, dict(zip(names, schedules, strict=False))))
    return found


def _apply(own: dict[str, Any], a: Adjustment, outer: dict[str, dict[str, Any]]) -> dict[str, Any]:
    import islpy as isl

    out = {}
    for s, pa in own.items():
        value = pa if a.sign > 0 else pa.neg()
        for by, factor in a.factors.items():
            value = value.add(outer[by][s].scale_val(isl.Val(factor)))
        constant = isl.PwAff.from_aff(
            isl.Aff.zero_on_domain(isl.LocalSpace.from_space(pa.get_domain_space())).set_constant_val(
                isl.Val(a.shifts.get(s, 0))
            )
        )
        out[s] = value.add(constant)
    return out


# ---- a loop whose iterations are independent -----------------------------------------------------


def _alone(before: Any, step: Step, loop: str) -> Iterator[list[Step]]:
    """Align the statements of the loop; else let a loop around it carry everything (wavefront)."""
    spot = locate(before.tree, loop)
    above = [*outer_members(spot.path), *spot.band.members[: spot.index]]
    pairs = pairs_below(before.scop, above, list(spot.member.schedule), step.name == "parallel")
    aligned = smallest_adjustment(
        distances(pairs, [spot.member.schedule]), [], list(spot.member.schedule), exactly=True, signs=(1,)
    )
    if aligned is not None:
        yield [
            *(Step("shift", {"loop": loop, "amount": v, "statements": [s]}) for s, v in aligned.shifts.items()),
            step,
        ]
    for outer in [m.name for m in reversed(above)]:
        wave = Step("skew", {"loop": outer, "by": loop, "factor": 1})
        yield [wave, step]
        found = _adjusted(before, [outer, loop])
        if found:
            yield [*found, wave, step]


# ---- the order of statements ---------------------------------------------------------------------


def _turned(before: Any, step: Step) -> Iterator[list[Step]]:
    """Before a distribution, put the parts in an order that all conflicts of the loop follow."""
    from polyc.poly.tree import Sequence as SequenceNode

    spot = locate(before.tree, step.args["loop"])
    if not isinstance(spot.band.child, SequenceNode):
        return
    above = [*outer_members(spot.path), *spot.band.members[: spot.index]]
    parts = [frozenset(f.domain) for f in spot.band.child.filters]
    pairs = pairs_below(before.scop, above, list(spot.member.schedule))
    left, order = list(parts), []
    while left:
        free = [p for p in left if not any(s in q and t in p for q in left if q is not p for s, t in pairs)]
        if not free:
            return  # a cycle: these parts cannot be separated
        order.append(free[0])
        left.remove(free[0])
    if order != parts:
        yield [Step("reorder_statements", {"order": [min(p) for p in order]}), step]


def _delayed(before: Any, step: Step) -> Iterator[list[Step]]:
    """Delay what shall come first by as many iterations of the loop around as the conflicts ask."""
    order = step.args["order"]
    around = [n for n in loop_names(before.tree) if all(s in locate(before.tree, n).member.schedule for s in order)]
    for loop in reversed(around):
        spot = locate(before.tree, loop)
        above = [*outer_members(spot.path), *spot.band.members[: spot.index]]
        pairs = pairs_below(before.scop, above, order)
        apart = {k: d for k, d in distances(pairs, [spot.member.schedule]).items() if k[0] != k[1]}
        a = smallest_adjustment(apart, [], order, at_least=1, signs=(1,))
        if a is not None:
            shifts = [Step("shift", {"loop": loop, "amount": v, "statements": [s]}) for s, v in a.shifts.items()]
            yield [*shifts, step]


# ---- smallest ------------------------------------------------------------------------------------


def _lowered(before: Any, steps: list[Step]) -> list[Step]:
    """The steps with factors and shifts as near to zero, one after the other, as is still accepted."""
    k = 0
    while k < len(steps):
        amount = {"skew": "factor", "shift": "amount", "fuse": "shift"}.get(steps[k].name)
        value = steps[k].args.get(amount, 0) if amount else 0
        removable = steps[k].name in ("skew", "shift", "reverse")
        smaller = 0 if steps[k].name == "reverse" else value - (1 if value > 0 else -1)
        if not value and steps[k].name != "reverse":
            k += 1
            continue
        if smaller == 0 and removable:
            trial = [*steps[:k], *steps[k + 1 :]]
        else:
            trial = [*steps[:k], Step(steps[k].name, {**steps[k].args, str(amount): smaller}), *steps[k + 1 :]]
        if _accepted(before, trial):
            steps = trial
        else:
            k += 1
    return steps


def _words(refused: Step, steps: Sequence[Step]) -> str:
    """The repair as one clause."""
    *first, last = steps
    if last.name == "fuse":
        return f"shift={last.args['shift']} makes it legal"
    changed = {k: v for k, v in last.args.items() if v != refused.args.get(k)}
    new = f"{', '.join(f'{k}={v!r}' for k, v in changed.items())} makes it legal" if changed else "it is legal"
    if not first:
        return new
    return f"after {', '.join(_brief(s) for s in first)} {new if not changed else 'it is legal as ' + str(last)}"


def _brief(s: Step) -> str:
    """`skew('i', 't', 1)`."""
    return f"{s.name}({', '.join(repr(v) for v in s.args.values() if v is not None)})"
