"""`polyc.DynamicBatch`: calls of a few functions in graphs of different shapes (trees), many at a time.

The calls of all trees form one graph without circles. A call's depth is one more than the largest of its operands;
calls of one function at one depth do not need each other and run as one call on a batch (TensorFlow Fold, 1702.02181).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.graph_driver.python_graphs.place import placed
from polyc.graph_driver.python_graphs.trace import Traced, trace
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

BATCH = "batch"


@dataclass(frozen=True, eq=False)
class Pending:
    """Result `number` of a call that has not run yet."""

    owner: DynamicBatch
    call: int
    number: int


@dataclass(frozen=True)
class _Call:
    function: int
    operands: tuple[Any, ...]
    depth: int


class DynamicBatch:
    """Calls that are written down first (`call`) and run in batches then (`run`).

    `calls` is how many were written down since the last run, `batches` how many calls of functions the last run made
    of them. A function is compiled once for all sizes of a batch.
    """

    def __init__(self, **options: Any) -> None:
        """`options`: of `polyc.trace`, as `threads`."""
        self._options = options
        self._functions: list[Callable[..., Any]] = []
        self._number: dict[Callable[..., Any], int] = {}
        self._traced: dict[tuple[int, tuple[int, ...]], Traced] = {}
        self._results: list[int] = []
        self._calls: list[_Call] = []
        self.batches = 0

    @property
    def calls(self) -> int:
        """How many calls wait."""
        return len(self._calls)

    def call(self, function: Callable[..., Any], *operands: Any, results: int = 1) -> Any:
        """Write a call down.

        Args:
            function: takes arrays whose first axis counts the calls of a batch, and returns such; each call has its
                own place there, and does not depend on its place.
            operands: arrays without that axis, or what `call` gave.
            results: how many arrays the function returns.

        Returns:
            What stands for the result, a tuple of `results` of them for several.

        Raises:
            ArgumentError: an operand is neither, or the function was called with another number of results.
        """
        number = self._number.setdefault(function, len(self._functions))
        if number == len(self._functions):
            self._functions.append(function)
            self._results.append(results)
        if self._results[number] != results:
            raise ArgumentError(placed(f"{_name(function)} had {self._results[number]} results before, not {results}"))
        depth, given = 0, []
        for k, x in enumerate(operands):
            if isinstance(x, Pending):
                if x.owner is not self or x.call >= len(self._calls):
                    raise ArgumentError(placed(f"operand {k} of {_name(function)} is of another batch, or has run"))
                depth = max(depth, self._calls[x.call].depth + 1)
            else:
                x = np.asarray(x)
                if x.dtype == object:
                    raise ArgumentError(placed(f"operand {k} of {_name(function)} is no array and no pending result"))
            given.append(x)
        self._calls.append(_Call(number, tuple(given), depth))
        made = tuple(Pending(self, len(self._calls) - 1, r) for r in range(results))
        return made[0] if results == 1 else made

    def run(self, wanted: Sequence[Any]) -> list[Any]:
        """Run all calls; the values of `wanted` (what `call` gave, in tuples too), in order.

        Raises:
            ArgumentError: something of `wanted` is not of this batch, or a function returned something else than said.
            ModelError: a function cannot be traced.
        """
        for x in wanted:
            if not all(isinstance(p, Pending) and p.owner is self for p in (x if isinstance(x, tuple) else (x,))):
                raise ArgumentError(placed(f"{x!r:.60} is no result of a call of this batch"))
        calls, self._calls, self.batches = self._calls, [], 0
        groups: dict[tuple[int, int, tuple[Any, ...]], list[int]] = {}
        shapes: dict[int, list[tuple[Any, ...]]] = {}
        done = _Done(calls)
        for depth in range(1 + max((c.depth for c in calls), default=-1)):
            groups.clear()
            for k in done.at_depth(depth):
                kinds = tuple(shapes[x.call][x.number] if isinstance(x, Pending) else (x.dtype.str, x.shape)
                              for x in calls[k].operands)  # fmt: skip
                groups.setdefault((calls[k].function, depth, kinds), []).append(k)
            for (function, _, kinds), members in groups.items():
                made = self._batch(function, kinds, [done.column(members, p) for p in range(len(kinds))], len(members))
                shapes.update(dict.fromkeys(members, [(m.dtype.str, m.shape[1:]) for m in made]))
                done.put(members, made)
        return [tuple(map(done.value, x)) if isinstance(x, tuple) else done.value(x) for x in wanted]

    def _batch(
        self, number: int, kinds: tuple[Any, ...], columns: Sequence[np.ndarray], rows: int
    ) -> tuple[np.ndarray, ...]:
        """One call of a function on a batch."""
        function = self._functions[number]
        key = number, tuple(len(shape) for _, shape in kinds)
        if key not in self._traced:
            self._traced[key] = _traced(function, key[1], self._options)
        self.batches += 1
        made = self._traced[key](*columns)
        results = made if isinstance(made, tuple) else (made,)
        if len(results) != self._results[number]:
            raise ArgumentError(f"{_name(function)} returned {len(results)} arrays, not {self._results[number]}")
        for r in results:
            if np.shape(r)[:1] != (rows,):
                raise ArgumentError(
                    f"{_name(function)} returned the shape {list(np.shape(r))} for a batch of {rows}: its first axis "
                    f"counts the calls"
                )
        return results


class _Done:
    """Results by batch: of each call the batch that it was in, and its row there."""

    def __init__(self, calls: Sequence[_Call]) -> None:
        self.calls = calls
        self.batches: list[tuple[np.ndarray, ...]] = []
        self.batch = np.full(len(calls), -1)
        self.row = np.zeros(len(calls), np.int64)
        self._depths: dict[int, list[int]] = {}
        for k, c in enumerate(calls):
            self._depths.setdefault(c.depth, []).append(k)

    def at_depth(self, depth: int) -> Sequence[int]:
        """The calls of one depth."""
        return self._depths.get(depth, ())

    def put(self, members: Sequence[int], made: tuple[np.ndarray, ...]) -> None:
        """The results of calls, row by row."""
        self.batch[members] = len(self.batches)
        self.row[members] = np.arange(len(members))
        self.batches.append(made)

    def value(self, x: Pending) -> np.ndarray:
        """One result."""
        return np.asarray(self.batches[self.batch[x.call]][x.number][self.row[x.call]])

    def column(self, members: Sequence[int], position: int) -> np.ndarray:
        """Operand number `position` of calls, one behind the other."""
        operands = [self.calls[k].operands[position] for k in members]
        if not any(isinstance(x, Pending) for x in operands):
            return np.stack(operands)
        first = operands[0]
        if all(isinstance(x, Pending) and x.number == first.number for x in operands):
            at = np.array([x.call for x in operands])
            return self._taken(self.batch[at], self.row[at], first.number)
        return np.stack([self.value(x) if isinstance(x, Pending) else x for x in operands])

    def _taken(self, batches: np.ndarray, rows: np.ndarray, number: int) -> np.ndarray:
        """Rows of one result, from one or several batches."""
        sources = np.unique(batches)
        if len(sources) == 1:
            source = self.batches[sources[0]][number]
            if len(rows) == len(source) and (rows == np.arange(len(rows))).all():
                return source
            return source.take(rows, axis=0)
        like = self.batches[sources[0]][number]
        made = np.empty((len(rows), *like.shape[1:]), like.dtype)
        for b in sources:
            chosen = np.flatnonzero(batches == b)
            made[chosen] = self.batches[b][number].take(rows[chosen], axis=0)
        return made


def _traced(function: Callable[..., Any], ranks: Sequence[int], options: Mapping[str, Any]) -> Traced:
    """The function with the first axis of all arguments symbolic."""

    def batched(*columns: Any) -> Any:
        return function(*columns)

    batched.__name__ = _name(function)
    return trace(batched, sizes={f"columns[{k}]": (BATCH, *[None] * r) for k, r in enumerate(ranks)}, **options)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
