"""Violated accesses: what checks are called, and the record in which compiled code tells of them.

An element of the record is 0 where nothing was outside, else the largest subscript that was (`decoded`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polyc.poly.errors import BoundsError
from polyc.poly.records import dataclass

if TYPE_CHECKING:  # a model that is loaded starts without expressions
    from polyc.poly.expr import Expr, Span

RECORD = "bounds_record"
"""The name of the record among a kernel's arguments (with a number where it is taken)."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a violation of one access is called: what `polyc.BoundsError` needs but for the index."""

    operator: str
    array: str
    axis: int
    size: Expr
    span: Span | None
    unsigned: bool = False  # the subscript is a u64: its number is printed as such
    how: str = "in the loop"  # or "before": nothing has been written when it fails


def decoded(value: int) -> int:
    """The subscript that an element of the record stands for."""
    return value - 1 if value < 1 << 63 else value - (1 << 64)


def violation(checks: Sequence[Check], record: Sequence[int], sizes: Mapping[str, int]) -> BoundsError:
    """The error that a record tells of: the first access, in the order of the program, that was violated."""
    from polyc.poly.binding import evaluate

    number = next(n for n, value in enumerate(record) if value)
    check, index = checks[number], decoded(int(record[number]))
    index = index % (1 << 64) if check.unsigned else index
    line, place = (None, "") if check.span is None else (check.span.line, f"{check.span}")
    size = evaluate(check.size, sizes)
    return BoundsError(check.operator, line, check.array, check.axis, index, size, place)


DESCRIBED = 5
"""Numbers of a self-describing record for each check: what it found, and the parts of `Violation`."""


@dataclass(frozen=True, slots=True)
class Violation:
    """What a self-describing record tells of: `argument` is the array's number, None for one of the kernel's own.

    `axis` is of the array as the kernel sees it, whose axes may be several of the caller's array. `outer`, the product
    of the extents before it, is the same for both (`axis_of`).
    """

    index: int
    axis: int
    size: int
    argument: int | None
    outer: int = 1

    def axis_of(self, shape: Sequence[int]) -> int:
        """The axis of an array of this shape, which has the same elements in the same order."""
        before = 1
        for axis, extent in enumerate(shape):
            if (before, extent) == (self.outer, self.size):
                return axis
            before *= extent
        return self.axis


def described(record: Sequence[int]) -> Violation | None:
    """The first violation in a self-describing record."""
    n = len(record) // DESCRIBED
    for k in range(n):
        if record[k]:
            axis, size, argument, outer = record[n + (DESCRIBED - 1) * k :][: DESCRIBED - 1]
            return Violation(decoded(record[k]), axis, size, None if argument == (1 << 64) - 1 else argument, outer)
    return None
