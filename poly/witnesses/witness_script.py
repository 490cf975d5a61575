"""A witness as a stand-alone NumPy script: the search for data that show the conflict.

Both orders are lists of (statement, indices) enumerated from the model, so that the script needs
no code generator to be trusted. Data are searched until an element's final value differs; where
the statements' own arithmetic hides the difference (both orders store equal values, or a later
write covers it), the element is looked at in the moment of the conflict, or each store writes a
symbolic tag of what it read. The script says which. With tags some pair always shows: of the
accesses of an element that run in another order than in the program, two are neighbours in the
program's order, and their later one then sees, or leaves, another writer's tag.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from polyc.poly.access import accesses
from polyc.poly.enumeration import Instance
from polyc.poly.expr import loads
from polyc.poly.records import dataclass
from polyc.poly.witnesses.executions import (
    DROP_BUFFER,
    NEW_BUFFER,
    Entry,
    Enumerated,
    Execution,
    enumerate_orders,
    own_update,
)
from polyc.poly.witnesses.script_text import Moment, Script, Values, moment_of
from polyc.poly.witnesses.witness import Case, Witness, witnesses_at

PAIRS = 400  # other violated pairs that are tried where the witness's own does not show


@dataclass(frozen=True)
class Shown:
    """A script and what it prints."""

    script: str
    values: Values


def shown(witness: Witness, case: Case) -> Shown | None:
    """The script of a refusal, with the first data found that show it; None if none do."""
    found = enumerate_orders(witness, case)
    return None if found is None else _Search(witness, case, found).run()


@dataclass(frozen=True)
class _Search:
    witness: Witness
    case: Case
    found: Enumerated

    def run(self) -> Shown | None:
        """Real values before tags, the end before the moment, the witness's own pair before others."""
        own = [self.witness]
        patience = 5 if self.data_dependent else 1
        stages = ((False, own, 6), (True, own, 6), (True, None, 12 * patience), (False, None, 12 * patience))
        for tags, pairs, seeds in stages:
            for refused in self.found.refused:
                for seed in range(seeds):
                    shown = self.attempt(refused, tags, self.others if pairs is None else pairs, seed)
                    if shown is not None:
                        return shown
        return None

    @property
    def data_dependent(self) -> bool:
        """Whether some subscript is read from an array: then the data must meet to show a conflict."""
        return any(True for a in accesses(self.found.scop) for index in a.load.index for _ in loads(index))

    @cached_property
    def others(self) -> Sequence[Witness]:
        """Other pairs that the refused tree breaks at these sizes."""
        from polyc.poly.legality import violations

        found: list[Witness] = []
        for v in violations(self.case.scop, self.case.tree):
            if v.pairs is not None and len(found) < PAIRS:
                found += witnesses_at(self.case.scop, v.pairs, self.witness.params, self.case, PAIRS - len(found))
        return [w for w in found if not own_update(self.case.scop, w)]

    def attempt(self, refused: Execution, tags: bool, pairs: Sequence[Witness], seed: int) -> Shown | None:
        """The script for these data, if they show anything."""
        plain = Script(self.witness, self.case, self.found, refused, tags, None, seed)
        moments = [moment_of(w) for w in pairs]
        try:
            right, wrong = (_Run(plain, order, moments) for order in (self.found.program, refused))
        except (IndexError, OverflowError, ValueError, ZeroDivisionError):
            return None  # these random data lead out of an array or of a type's range
        values = self.final(right, wrong, tags)
        if values is not None:
            return _checked(plain, values)
        for w, moment, a, b in zip(pairs, moments, right.seen, wrong.seen, strict=True):
            if a is not None and b is not None and _differ(a, b):
                script = replace(plain, witness=w, moment=moment)
                return _checked(script, Values(moment.array, moment.element, a, b, moment.words, tags))
        return None

    def final(self, right: _Run, wrong: _Run, tags: bool) -> Values | None:
        """An element that the caller sees and that differs: the witness's own where it does."""
        best: tuple[tuple[bool, bool], Values] | None = None
        for name, array in self.found.scop.arrays.items():
            if array.kind not in ("inout", "out"):
                continue
            x, y = right.memory[name], wrong.memory[name]
            same = (x == y) | ((x != x) & (y != y))
            for at in [tuple(int(i) for i in p) for p in np.argwhere(~same)[:200]] if x.ndim else [()] * (not same):
                if _differ(x[at], y[at]):
                    own = (name, at) == (self.witness.array, self.witness.element)
                    rank = (own, bool(x[at] == x[at] and y[at] == y[at]))
                    if best is None or rank > best[0]:
                        best = rank, Values(name, at, x[at], y[at], "at the end", tags)
        return None if best is None else best[1]


class _Run:
    """One order on the data of a script: `memory` at the end, `seen` at the moments."""

    def __init__(self, script: Script, execution: Execution, moments: Sequence[Moment]) -> None:
        self.scope: dict[str, Any] = {"__name__": "witness"}
        exec(compile(script.program_text(), "<witness>", "exec"), self.scope)
        self.promote = script.case.promote
        self.seen: list[Any] = [None] * len(moments)
        self.readers: dict[Instance, list[int]] = {}
        self.pairs: dict[Instance, list[int]] = {}
        self.moments = moments
        for k, m in enumerate(moments):
            for x in m.pair if m.reader is None else ():
                self.pairs.setdefault(x, []).append(k)
            if m.reader is not None:
                self.readers.setdefault(m.reader, []).append(k)
        with np.errstate(all="ignore"):
            self.memory = self.scope["data"](script.seed)
            self.play(execution.order)

    def look(self, k: int) -> None:
        self.seen[k] = self.memory[self.moments[k].array][self.moments[k].element].copy()

    def play(self, order: Sequence[Entry]) -> None:
        m, done = self.memory, set[Instance]()
        outer: Any = None
        written: set[tuple[int, ...]] = set()
        for entry in order:
            if isinstance(entry, str):
                assert self.promote is not None and entry in (NEW_BUFFER, DROP_BUFFER)
                name = self.promote.array
                if entry == NEW_BUFFER:
                    outer, written = m[name], set()
                    m[name] = self.scope["buffer"](outer)
                else:
                    for at in written if self.promote.copy_out else ():
                        outer[at] = m[name][at]
                    m[name] = outer
                continue
            group = _group(entry)
            for x in group:
                for k in self.readers.get(x, ()):
                    self.look(k)
            stores = [self.scope[name](m, *at) for name, at in group]
            for store in stores:
                if store is not None:
                    if store[2] is not None:
                        m[store[0]][store[1]] = store[2]
                    if self.promote is not None and store[0] == self.promote.array:
                        written.add(store[1])
            done.update(group)
            for x in group:
                for k in self.pairs.get(x, ()):
                    if self.seen[k] is None and done.issuperset(self.moments[k].pair):
                        self.look(k)


def _group(entry: Entry) -> Iterator[Instance] | list[Instance]:
    return [entry] if isinstance(entry[0], str) else list(entry)  # type: ignore[list-item, arg-type]


def _checked(script: Script, values: Values) -> Shown:
    """The finished script, after it has been run."""
    text = script.text(values)
    scope: dict[str, Any] = {"__name__": "witness"}
    exec(compile(text, "<witness>", "exec"), scope)
    with contextlib.redirect_stdout(io.StringIO()):
        assert scope["main"]() == 0, "the script does not show what was found"
    return Shown(text, values)


def _differ(a: Any, b: Any) -> bool:
    """Whether two values differ by more than the rounding of a reordered reduction."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "f":
        return bool(a != b)
    if np.isnan(a) or np.isnan(b):
        return bool(np.isnan(a)) != bool(np.isnan(b))
    if not (np.isfinite(a) and np.isfinite(b)):
        return bool(a != b)
    return not math.isclose(float(a), float(b), rel_tol=math.sqrt(np.finfo(a.dtype).eps), abs_tol=1e-30)
