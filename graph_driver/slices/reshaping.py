"""The same elements under two shapes, by rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import islpy as isl

Shape = Sequence[int]


def reshaped(source: tuple[str, Shape], sink: tuple[str, Shape]) -> isl.Map:
    """`{ A[x] -> B[y] }` of equal positions by rows; both shapes have as many elements.

    Dimensions that both have stay as they are, so that only runs of them that were really split or joined are
    related by a sum.
    """
    (a, before), (b, after) = source, sink
    xs, ys = [f"x{d}" for d in range(len(before))], [f"y{d}" for d in range(len(after))]
    parts = [f"0 <= {v} < {n}" for v, n in (*zip(xs, before), *zip(ys, after))]
    for first, second in shared_runs(before, after):
        parts.append(f"{_position(xs, before, first)} = {_position(ys, after, second)}")
    return isl.Map(f"{{ {a}[{', '.join(xs)}] -> {b}[{', '.join(ys)}] : {' and '.join(parts) or '1 = 1'} }}")


def shared_runs(before: Shape, after: Shape) -> Iterator[tuple[range, range]]:
    """The shortest runs of dimensions, one after the other, that hold as many elements in both shapes."""
    i = j = 0
    while i < len(before) or j < len(after):
        first, second, left, right = i, j, 1, 1
        while True:
            if i < len(before) and (left <= right or j == len(after)):
                left, i = left * before[i], i + 1
            elif j < len(after):
                right, j = right * after[j], j + 1
            if left == right or (i == len(before) and j == len(after)):
                break
        yield range(first, i), range(second, j)


def _position(names: Sequence[str], shape: Shape, run: range) -> str:
    terms, weight = [], 1
    for d in reversed(run):
        terms.append(f"{weight} * {names[d]}")
        weight *= shape[d]
    return " + ".join(terms) or "0"
