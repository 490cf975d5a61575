"""`op.compile(schedule=...)`: a schedule brings its constants and sizes, nothing else may contradict them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from polyc.poly.errors import ArgumentError, PolycError, ScheduleError
from polyc.poly.expr import Const, Expr
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Origin, Scop
from polyc.poly.words import first_line

from .annotations import size_text
from .fold import difference
from .frozen import freeze
from .sizes import solve_sizes

if TYPE_CHECKING:
    from .operator import Operator


def fitting(operator: Operator, schedule: Any, given: Mapping[str, Any]) -> tuple[Scop, dict[str, int]]:
    """The Scop that `schedule` starts from, proved to be this operator's, and the sizes to fix in it.

    Raises:
        ScheduleError: no schedule, or one of another operator or of an older definition of this one.
        ArgumentError: a value in `given` contradicts what the schedule was made for.
    """
    scop: Scop | None = getattr(schedule, "original", None)
    if scop is None:
        raise ScheduleError(
            f"schedule= takes a Schedule, as {operator.name}.scop().schedule() makes it, not {schedule!r:.80}"
        )
    if scop.name != operator.name or set(scop.args) != {p.name for p in operator.signature.params}:
        raise ScheduleError(f"the schedule given for {operator.name} belongs to another operator ({scop.name})")
    origin = scop.origin
    if origin is None:  # from a file, or made by hand: only what is given here can say what it is for
        constants, sizes, shapes = operator.sorted_keywords(given)
        origin = Origin(constants, {k: v for k, v in sizes.items() if k not in scop.params}, shapes)
    else:
        sizes = _agreed(operator, origin, given)
    try:
        same = scop == operator.translated(origin) or scop == _fixed_later(operator, origin)
    except PolycError as problem:
        raise ScheduleError(f"{_older(operator, scop)} ({first_line(problem)})") from None
    if not same:
        raise ScheduleError(_older(operator, scop))
    return scop, {k: v.value for k, v in sizes.items() if isinstance(v, Const) and k in schedule.scop.params}


def _fixed_later(operator: Operator, origin: Origin) -> Scop:
    """The Scop of these sizes as `specialise` makes it of the symbolic one: values that sizes decide (`1.0 / f64(N)`)
    stay expressions there, which the front end computes where it knows the sizes."""
    fixed = {k: int(v.value) for k, v in origin.sizes.items() if isinstance(v, Const)}
    symbolic = operator.translated(Origin(origin.constants, {k: v for k, v in origin.sizes.items() if k not in fixed},
                                          origin.shapes))  # fmt: skip
    return specialise(symbolic, {k: v for k, v in fixed.items() if k in symbolic.params})


def _older(operator: Operator, scop: Scop) -> str:
    if scop.origin is None:
        return (
            f"the schedule given for {operator.name} does not fit it as it is now: give the constants and sizes that it"
            f" was made for, or make it from {operator.name}.scop()"
        )
    return (
        f"the schedule given for {operator.name} belongs to another operator of that name, or to an older definition"
        f" (its text or a value that it reads has changed): make it anew from {operator.name}.scop()"
    )


def _agreed(operator: Operator, origin: Origin, given: Mapping[str, Any]) -> dict[str, Expr]:
    """The sizes that follow from `given`, none of which contradicts the schedule's."""
    constants, sizes, shapes = operator.sorted_keywords({**_required(operator, origin), **given})
    for name in operator.signature.constants:
        if name in given and freeze(constants[name]) != freeze(origin.constants[name]):
            raise _conflict(operator, name, repr(given[name]), repr(origin.constants[name]))
    for name, shape in shapes.items():
        made = origin.shapes.get(name, shape)
        if len(made) != len(shape) or any(isinstance(m, Const) and m != s for m, s in zip(made, shape)):
            raise _conflict(operator, name, _shape(shape), _shape(made))
    solved = solve_sizes(operator.signature, shapes, sizes) if shapes else sizes
    fixed = solve_sizes(operator.signature, origin.shapes, origin.sizes)
    for name, value in solved.items():
        made_for = fixed.get(name, value)
        if isinstance(made_for, Const) and difference(value, made_for) != 0:
            raise _conflict(operator, name, size_text(value), size_text(made_for))
    return solved


def _required(operator: Operator, origin: Origin) -> dict[str, Any]:
    return {k: v for k, v in origin.constants.items() if k in operator.signature.constants}


def _conflict(operator: Operator, name: str, here: str, there: str) -> ArgumentError:
    return ArgumentError(
        f"{operator.name}: {name}={here} is given beside a schedule made for {name}={there}: leave it out, or make the"
        f" schedule from {operator.name}.scop({name}={here})"
    )


def _shape(shape: tuple[Expr, ...]) -> str:
    return f"({', '.join(size_text(e) for e in shape)}{',' if len(shape) == 1 else ''})"
