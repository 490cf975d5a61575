"""A contraction with what belongs to it: its initialisation, and pointwise statements that follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import islpy as isl

from polyc.poly.expr import Load, Var, loads
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import loop_dim, time_map
from polyc.scheduler.recognition.contraction import (
    Contraction,
    recognise,
    recognise_sweep,
)


@dataclass
class Group:
    """Statements scheduled together: `iters[stmt][output]` is the statement's own iterator."""

    contraction: Contraction
    before: list[Statement] = field(default_factory=list)
    after: list[Statement] = field(default_factory=list)
    iters: dict[str, dict[str, str]] = field(default_factory=dict)

    def statements(self) -> list[Statement]:
        """In execution order."""
        return [*self.before, self.contraction.update, *self.after]


def group_nests(scop: Scop, nests: list[list[str]], start: int) -> tuple[Group, int] | None:
    """The contraction group that begins at nest `start`, and how many nests it takes.

    Following nests join when each is one statement that is pointwise in the outputs
    (possibly reading other arrays); a nest holding only the initialisation may come first.
    """
    found = examine_nests(scop, nests, start)
    return None if isinstance(found, str) else found


def examine_nests(scop: Scop, nests: list[list[str]], start: int) -> tuple[Group, int] | str:
    """What `group_nests` gives, or what stands against it ("" where the nest holds no contraction at all)."""
    first = [scop.statements[s] for s in nests[start]]
    found = _recognised(first)
    taken = 1
    if not found and len(first) == 1 and start + 1 < len(nests):
        second = [scop.statements[s] for s in nests[start + 1]]
        found = [c for c in _recognised(second) if c.update.array == first[0].array]
        first, taken = [*first, *second], 2
    if len(found) != 1:
        names = [c.update.name for c in found]
        return f"{' and '.join(names)} share a nest, which is then none's own" if names else ""
    c = found[0]
    group = Group(c, iters={c.update.name: {o: o for o in c.outputs}})
    aligned = {c.update.array: c.outputs}
    for stmt in first:
        if stmt is c.update:
            continue
        if stmt.array != c.update.array:
            return f"{stmt.name}, in the same nest, writes {stmt.array} and not the result {c.update.array}"
        if not _align(stmt, aligned, group):
            return f"{stmt.name}, in the same nest, does not go over {c.update.target.array} one element at a time"
        if first.index(stmt) > first.index(c.update) and not _reads(stmt, aligned) and _elsewhere(stmt, c, group):
            return f"{stmt.name}, in the same nest, writes other elements of {c.update.array}"
        (group.before if first.index(stmt) < first.index(c.update) else group.after).append(stmt)
    while start + taken < len(nests) and len(nests[start + taken]) == 1:
        stmt = scop.statements[nests[start + taken][0]]
        if stmt.dynamic or not _reads(stmt, aligned) or not _align(stmt, aligned, group):
            break
        group.after.append(stmt)
        taken += 1
    return group, taken


def _recognised(stmts: Sequence[Statement]) -> list[Contraction]:
    return [c for s in stmts if (c := recognise(s) or recognise_sweep(s)) is not None]


def _reads(stmt: Statement, aligned: Mapping[str, tuple[str, ...]]) -> bool:
    return any(load.array in aligned for load in loads(stmt.value))


def _elsewhere(stmt: Statement, c: Contraction, group: Group) -> bool:
    """Whether a statement writes no element that the contraction updates."""
    own, theirs = group.iters[stmt.name], c.outputs
    return bool(_over(stmt, [own[o] for o in theirs]).is_disjoint(_over(c.update, theirs)))


def _over(s: Statement, iters: Sequence[str]) -> isl.Set:
    """The values that iterators take together."""
    return time_map(s.domain, [loop_dim(s.domain, s.iters.index(i)) for i in iters]).range()


def _align(stmt: Statement, aligned: dict[str, tuple[str, ...]], group: Group) -> bool:
    """Match the statement's iterators to the outputs through its accesses of aligned arrays."""
    outputs = group.contraction.outputs
    match: dict[str, str] | None = None
    for load in (stmt.target, *loads(stmt.value)):
        if load.array not in aligned:
            continue
        here = _match(load, aligned[load.array])
        if here is None or (match is not None and here != match):
            return False
        match = here
    if match is None or set(match.values()) != set(stmt.iters) or set(match) != set(outputs):
        return False
    if stmt.array not in aligned:
        by_iter = {own: out for out, own in match.items()}
        names = [e.name for e in stmt.index if isinstance(e, Var)]
        if len(names) != len(stmt.index) or set(names) != set(by_iter):
            return False
        aligned[stmt.array] = tuple(by_iter[n] for n in names)
    group.iters[stmt.name] = match
    return True


def _match(load: Load, dims: tuple[str, ...]) -> dict[str, str] | None:
    """Output name -> iterator used at that dimension, None unless all are distinct variables."""
    names = [e.name for e in load.index if isinstance(e, Var)]
    if len(names) != len(load.index) or len(set(names)) != len(names):
        return None
    return dict(zip(dims, names, strict=True))


def used_outside(scop: Scop, group: Group, array: str) -> bool:
    """Whether the caller or another statement needs the array after the group."""
    inside = {s.name for s in group.statements()}
    if scop.arrays[array].kind != "local":
        return True
    return any(
        array == s.array or any(load.array == array for load in loads(s.value))
        for s in scop.statements.values()
        if s.name not in inside
    )


def tile_is_filled(group: Group, array: str) -> bool:
    """Whether a tile of the array begins with what was there: nothing initialises it, or `D *= beta` does."""
    first = group.statements()[0]
    reads_old = first.reduction is not None or any(load.array == array for load in loads(first.value))
    return array == group.contraction.update.array and (not group.before or reads_old)


def written_arrays(scop: Scop, group: Group) -> list[str]:
    """The result, and the local arrays that the statements after the update write."""
    update = group.contraction.update.array
    arrays = dict.fromkeys([update, *(s.array for s in group.after)])
    return [a for a in arrays if scop.arrays[a].kind == "local" or a == update]
