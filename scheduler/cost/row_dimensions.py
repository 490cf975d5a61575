"""How the arrays of a nest lie along one of its loops: neighbours, apart, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from polyc.poly.expr import Expr, Load, loads
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Member
from polyc.scheduler.cost.vector_loops import iterator
from polyc.scheduler.recognition.contraction import slope

ONE_BY_ONE = 1  # the tile of `slope`: nothing is cut yet


def row_dimensions(scop: Scop, member: Member) -> dict[str, int | None]:
    """The dimension of each array that the loop moves, value by value and in all accesses inside; None where that is
    none, or not the same one. Arrays that it moves nowhere are left out."""
    found: dict[str, set[int | None]] = {}
    for name, times in member.schedule.items():
        stmt = scop.statements[name]
        moved_by = iterator(stmt, times)
        for access in _accesses(stmt):
            found.setdefault(access.array, set()).add(None if moved_by is None else _dimension(access, moved_by))
    return {
        array: next(iter(dims)) if len(dims) == 1 else None for array, dims in found.items() if dims != {_NOT_MOVED}
    }


_NOT_MOVED = -1


def _accesses(stmt: Statement) -> Iterator[Load]:
    read: list[Expr] = [stmt.value, *stmt.index, *([] if stmt.predicate is None else [stmt.predicate])]
    yield stmt.target
    for e in read:
        yield from loads(e)


def _dimension(access: Load, name: str) -> int | None:
    slopes = [slope(e, name, ONE_BY_ONE) for e in access.index]
    moved = [d for d, by in enumerate(slopes) if by != 0]
    if not moved:
        return _NOT_MOVED
    return moved[0] if len(moved) == 1 and slopes[moved[0]] in (1, -1) else None
