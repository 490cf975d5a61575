"""Sets of elements of one array at fixed sizes: their plainest form, and how they read as subscripts."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.poly.records import dataclass

MOST_POINTS = 1 << 12
"""Points of one dimension that are looked at one by one."""

MOST_RUNS = 8
"""Pieces of one dimension that are written down; with more the set stays as isl has it."""


@dataclass(frozen=True)
class Run:
    """`first, first + step, ..., last`."""

    first: int
    last: int
    step: int = 1

    @property
    def count(self) -> int:
        """How many numbers."""
        return (self.last - self.first) // self.step + 1

    def __str__(self) -> str:
        if self.first == self.last:
            return str(self.first)
        return f"{self.first}:{self.last + 1}" + (f":{self.step}" if self.step > 1 else "")


def box(name: str, sides: Sequence[Sequence[Run]]) -> isl.Set:
    """The elements of an array whose subscript in each dimension is in one of its runs."""
    names = [f"i{d}" for d in range(len(sides))]
    conditions = [" or ".join(f"({_within(n, r)})" for r in runs) or "1 = 0" for n, runs in zip(names, sides)]
    return isl.Set(f"{{ {name}[{', '.join(names)}] : {' and '.join(f'({c})' for c in conditions) or '1 = 1'} }}")


def _within(name: str, run: Run) -> str:
    if run.first == run.last:
        return f"{name} = {run.first}"
    steps = f" and ({name} - {run.first}) mod {run.step} = 0" if run.step > 1 else ""
    return f"{run.first} <= {name} <= {run.last}{steps}"


def plain(elements: isl.Set) -> isl.Set:
    """The same set; as a product of runs where it is one, so that what is computed from it stays simple.

    Sets that pass through many relations gather existential dimensions (an image under a stride has one each time),
    which isl does not take out by itself.
    """
    sides = runs_of(elements)
    return elements.coalesce() if sides is None else box(elements.get_tuple_name() or "", sides)


def runs_of(elements: isl.Set) -> list[list[Run]] | None:
    """For each dimension the runs of subscripts whose product the set is; None where it is no such product.

    `elements` is bounded and has no parameters.
    """
    if elements.is_empty():
        return None
    sides = []
    for d in range(elements.dim(isl.dim_type.set)):
        side = _side(elements, d)
        if side is None:
            return None
        sides.append(side)
    product = box(elements.get_tuple_name() or "", sides)
    return sides if product.is_subset(elements) else None


def _side(elements: isl.Set, d: int) -> list[Run] | None:
    """The numbers that dimension `d` takes, as runs."""
    rank = elements.dim(isl.dim_type.set)
    one = elements.project_out(isl.dim_type.set, d + 1, rank - d - 1).project_out(isl.dim_type.set, 0, d)
    low, high = int(one.dim_min_val(0).to_python()), int(one.dim_max_val(0).to_python())
    if isl.Set(f"{{ [i] : {low} <= i <= {high} }}").is_subset(one.reset_tuple_id()):
        return [Run(low, high)]
    if high - low >= MOST_POINTS:
        return None
    found: list[int] = []
    one.foreach_point(lambda p: found.append(int(p.get_coordinate_val(isl.dim_type.set, 0).to_python())))
    runs = _runs(sorted(found))
    return runs if len(runs) <= MOST_RUNS else None


def _runs(numbers: Sequence[int]) -> list[Run]:
    """Ascending numbers as few runs: each as long as its first step lasts."""
    out: list[Run] = []
    k = 0
    while k < len(numbers):
        end = k + 1
        if end < len(numbers):
            step = numbers[end] - numbers[k]
            while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == step:
                end += 1
            out.append(Run(numbers[k], numbers[end], step))
            k = end + 1
        else:
            out.append(Run(numbers[k], numbers[k]))
            k = end
    return out


def count(elements: isl.Set) -> int:
    """How many elements a bounded set without parameters has."""
    if elements.is_empty():
        return 0
    sides = runs_of(elements)
    if sides is not None:
        total = 1
        for runs in sides:
            total *= sum(r.count for r in runs)
        return total
    return int(elements.count_val().to_python())


def subscripts(elements: isl.Set) -> str:
    """The set as subscripts, `0, 3:8, 1:9:2`; as isl writes it where it is no product."""
    if elements.is_empty():
        return "nothing"
    sides = runs_of(elements)
    if sides is None:
        return str(elements.coalesce())
    return ", ".join("|".join(map(str, runs)) for runs in sides)
