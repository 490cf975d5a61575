"""What a jump of `break` or `continue` is at run time.

Where Python alone decides about it, translating the loop's remaining iterations (or statements) is left out. Where
data or a loop variable decide, a local flag is set, and what an `Unless` holds runs where the flag is not set. Loops
get no other end here: `emit` ends a loop early when nothing in it would run any more.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyc.poly.dtypes import bool_
from polyc.poly.expr import Const, Expr, Load
from polyc.poly.records import dataclass

from .builder import Condition, Guard, Loop
from .frame import Frame, Version
from .jumps import Label, Leave
from .locals import TEMPORARY, declare, store
from .values import Sym, negate


@dataclass(eq=False)
class Place:
    """A label in the text being translated: the loops and guards around it, and whether it has been left.

    `flag` is the local that says so at run time, for jumps that a run decides about; `assigned` are the locals that
    have a value at all of them."""

    loops: tuple[Loop, ...]
    guards: tuple[Guard, ...]
    flag: Version | None = None
    left: bool = False
    assigned: frozenset[int] | None = None

    def read(self) -> Expr:
        """The flag's value."""
        assert self.flag is not None and self.flag.array is not None
        return Load(self.flag.array.name, self.flag.prefix, bool_)


def enter(frame: Frame, labels: Sequence[Label], node: ast.stmt) -> None:
    """Here begins what may leave for one of the labels."""
    for label in labels:
        place = frame.places[label] = Place(frame.builder.loops, frame.builder.guards)
        if label in frame.program.choices.flagged:
            place.flag = declare(frame, TEMPORARY)
            del frame.env[TEMPORARY]
            place.flag.name = {"break": "left", "continue": "skipped"}[label.word]
            frame.program.flags += 1
            store(frame, place.flag, Sym(Const(False, bool_), False), node)


def leave(frame: Frame, node: Leave, when: Expr | None = None) -> None:
    """The jump itself; with `when`, under this condition only."""
    place = frame.places[node.label]
    if place.flag is not None:
        store(frame, place.flag, Sym(Const(True, bool_) if when is None else when, False), node)
        here = frame.program.assigned
        place.assigned = here if place.assigned is None else place.assigned & here
    elif when is None and (place.loops, place.guards) == (frame.builder.loops, frame.builder.guards):
        place.left = True
    else:
        frame.program.choices.flagged.add(node.label)


def arrive(frame: Frame, labels: Sequence[Label]) -> None:
    """Behind the labels: what has a value there has it at all jumps, too."""
    for label in labels:
        if (there := frame.places[label].assigned) is not None:
            frame.program.assigned &= there


def flagged(frame: Frame, body: Sequence[ast.stmt]) -> bool:
    """Whether `body` is a jump that sets a flag, and nothing else."""
    return len(body) == 1 and isinstance(body[0], Leave) and frame.places[body[0].label].flag is not None


def has_left(frame: Frame, labels: Sequence[Label]) -> bool:
    """Whether Python has left one of the labels already."""
    return any(frame.places[label].left for label in labels)


def guard_of(frame: Frame, labels: Sequence[Label]) -> tuple[Guard, ...]:
    """What demands at run time that no label has been left."""
    flags = [place.read() for label in labels if (place := frame.places[label]).flag is not None]
    return tuple(Guard(condition=Condition(negate(f), negate(f))) for f in flags)
