"""A program and its adjoint as two: the first returns what the second needs of it.

    joint:     what is needed of the program; its statements backwards          (X, d_Y) -> grad_X
    forward:   the program, which keeps what the other reads                    X -> (Y, kept...)
    backward:  its statements backwards                                         (X, Y, kept..., d_Y) -> grad_X

All arrays that the forward part of the joint program leaves for the reversed one could be kept. One that a few
operations make again, for each element from what is there anyway, costs less to compute than to write and to read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from polyc.poly.adjoint.copies import written_after
from polyc.poly.adjoint.liveness import needed, read_by
from polyc.poly.adjoint.trees import in_place
from polyc.poly.binding import size_text
from polyc.poly.expr import Binary, Call, Expr, Load, Select, Unary, loads
from polyc.poly.records import dataclass
from polyc.poly.reduction import updates_once
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Leaf
from polyc.poly.verify import verify

OPERATIONS = 8
"""So many operations an element are done again rather than the element kept: one store and one load of four bytes take
a core about as long as that (some 20 GB/s beside 20 to 100 GFLOP/s)."""
CALL = 16
"""Operations that an elementary function counts as."""


@dataclass(frozen=True)
class Split:
    """Both programs. `kept` are the results of `forward` after those of the original and its arrays updated in place;
    `again` is what `backward` computes once more."""

    forward: Scop
    backward: Scop
    kept: tuple[str, ...]
    again: tuple[str, ...]


def split(joint: Scop, args: Collection[str], values: tuple[str, ...], reversed_: Collection[str]) -> Split:
    """The two programs.

    Args:
        joint: runs the whole program, then its statements backwards; its results are `values`, then gradients.
        args: the arguments of the program; other arguments are adjoints of its results.
        values: what the program returns, and its arrays updated in place.
        reversed_: the statements that are no part of the program: those of the joint one that it does not need.
    """
    first = {n: s for n, s in joint.statements.items() if n not in reversed_}
    last = {n: s for n, s in joint.statements.items() if n in reversed_}
    written = {s.array for s in first.values()}
    read = {a for s in last.values() for a in read_by(s)} & written
    kept, again, repeated = sorted(read - {*values}), [], dict[str, Statement]()
    for name in sorted(kept):
        rest = {*values, *kept} - {name}
        made = _again(joint, first, name, rest)
        if made is not None:
            repeated |= made
            kept.remove(name)
            again.append(name)
    known = (*values, *kept)
    gradients = tuple(n for n in joint.results if n not in values)
    live = needed(first, set(known))
    forward = _part(joint, {n: s for n, s in first.items() if n in live}, args, (), known, "forward")
    seeds = [n for n in joint.args if n not in args]
    statements = {n: s for n, s in joint.statements.items() if n in last or n in repeated}
    backward = _part(joint, statements, (*args, *known, *seeds), known, gradients, "backward")
    notes = _notes(joint, kept, again)
    return Split(
        replace(forward, notes=(*forward.notes, *notes)), replace(backward, notes=(*backward.notes, *notes)),
        tuple(kept), tuple(again),
    )  # fmt: skip


def _part(joint: Scop, statements: Mapping[str, Statement], args: Collection[str], given: Collection[str],
          results: tuple[str, ...], name: str) -> Scop:  # fmt: skip
    """Some statements of the joint program, in its order, as a program with these arguments and results."""
    tree = in_place(joint.tree, {n: [s] for n, s in statements.items()}, str)
    used = {
        *args,
        *results,
        *(s.array for s in statements.values()),
        *(a for s in statements.values() for a in read_by(s)),
    }
    arrays = {}
    for n, a in joint.arrays.items():
        if n in given:
            arrays[n] = replace(a, kind="in", scalar=False, expanded=0)
        elif n in results:
            arrays[n] = replace(a, kind="out", scalar=False, expanded=0)
        elif n in used:
            arrays[n] = a if n in args else replace(a, kind="local")
    made = replace(joint, name=f"{joint.name}_{name}", arrays=arrays, statements=dict(statements),
                   tree=Leaf() if tree is None else tree, args=tuple(args), results=results)  # fmt: skip
    verify(made)
    return made


def _again(joint: Scop, first: Mapping[str, Statement], array: str, there: Collection[str],
           ) -> dict[str, Statement] | None:  # fmt: skip
    """The statements that make an array again from arguments and what is there; None where keeping it costs less."""
    found: dict[str, Statement] = {}
    waiting, seen = [array], {array}
    while waiting:
        name = waiting.pop()
        for s in (s for s in first.values() if s.array == name):
            found[s.name] = s
            if s.predicate is not None or s.dynamic or any(load.array == name for load in loads(s.value)):
                return None
            if not updates_once(s.target, s.domain.intersect_params(joint.context)):
                return None
            for other in sorted(read_by(s) - seen):
                if other in there and written_after(joint, s.name, [other]):
                    return None
                if other not in there and joint.arrays[other].kind != "in":
                    seen.add(other)
                    waiting.append(other)
    return found if sum(_operations(s.value) for s in found.values()) <= OPERATIONS else None


def _operations(e: Expr) -> int:
    """Operations of an expression without its subscripts."""
    if isinstance(e, Load):
        return 0
    own = CALL if isinstance(e, Call) else isinstance(e, (Binary, Unary, Select))
    return own + sum(map(_operations, e.children()))


def _notes(joint: Scop, kept: Sequence[str], again: Sequence[str]) -> tuple[str, ...]:
    """What was decided, in words."""
    found = []
    for n in kept:
        a = joint.arrays[n]
        found.append(f"{n}: {a.dtype}[{', '.join(map(size_text, a.shape))}] is kept for the derivative")
    cheap = f"{OPERATIONS} operations for each element or fewer cost less than to keep it"
    return (*found, *(f"{n} is computed again in the derivative: {cheap}" for n in again))
