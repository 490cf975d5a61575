"""The immutable `Schedule`: a Scop, a tree, and the trace of the steps that led there.

Every transformation asks `poly.legality` before it returns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from poly.errors import IllegalSchedule, ScheduleError
from poly.scop import Scop
from poly.tree import Node, Space, loop_names
from scheduler import fusion, hints, marks, ordering, storage, tiling
from scheduler.tree_edit import check_dynamic, locate

Changes = Literal["all", "mark", "storage", "none"]


@dataclass(frozen=True)
class Step:
    """One transformation: its name and arguments (JSON values only)."""

    name: str
    args: dict[str, Any]

    def __str__(self) -> str:
        shown = {k: v if len(str(v)) < 80 else "..." for k, v in self.args.items() if v is not None}
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


@dataclass(frozen=True)
class Schedule:
    """When and how the statements of `scop` run.

    `tree` prints as a picture; `trace` replays on the same Scop; `notes` are decisions of
    the strategy that built the schedule. Refusals say which shift or skew would help, where one
    is found, unless `terse` (for searches that are refused a thousand times).
    """

    scop: Scop
    tree: Node
    trace: tuple[Step, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)
    terse: bool = field(default=False, compare=False, repr=False)
    _deferred: bool = field(default=False, compare=False, repr=False)

    @staticmethod
    def start(scop: Scop) -> Schedule:
        """The program order."""
        return Schedule(scop, scop.tree)

    @property
    def loops(self) -> tuple[str, ...]:
        """Names of all loops, outermost and textually first first."""
        return loop_names(self.tree)

    def __str__(self) -> str:
        from poly.text import print_tree

        return print_tree(self.tree, self.scop)

    # ---- trace -----------------------------------------------------------------------------

    def save(self) -> str:
        """The trace as JSON lines: one step a line."""
        return "".join(json.dumps({"do": s.name, **s.args}) + "\n" for s in self.trace)

    @staticmethod
    def replay(scop: Scop, text: str) -> Schedule:
        """Apply a saved trace to the program order of `scop`.

        Raises:
            ScheduleError: a line is not a step; IllegalSchedule: a step is illegal here.
        """
        schedule = Schedule.start(scop)
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                name = record.pop("do")
            except (ValueError, KeyError, AttributeError, TypeError):
                raise ScheduleError(f"line {number} of the trace is not a step: {line[:80]}") from None
            if name not in STEPS:
                raise ScheduleError(f"line {number} of the trace: no transformation '{name}'")
            try:
                schedule = getattr(schedule, name)(**record)
            except TypeError:
                raise ScheduleError(f"line {number} of the trace: wrong arguments for {name}: {line[:80]}") from None
        return schedule

    def noted(self, *notes: str) -> Schedule:
        """The same schedule with notes added."""
        return replace(self, notes=(*self.notes, *notes))

    # ---- blocks ----------------------------------------------------------------------------

    def split(self, loop: str, size: int) -> Schedule:
        """Cut a loop into blocks.

        Arguments: `loop`; `size`, iterations in a block.
        Before -> after: `i` -> `i.out` (number of the block), `i.in` (0 .. size-1).
        Refused when: the loop's bounds depend on data.
        """
        tree = tiling.split(self.scop, self.tree, loop, size)
        return self._step("split", {"loop": loop, "size": size}, tree, "none")

    def strip_mine(self, loop: str, size: int) -> Schedule:
        """Cut a loop into strips and keep its values.

        Arguments: `loop`; `size`, iterations in a strip.
        Before -> after: `i` -> `i.out` (number of the strip), `i.in` (the values of `i` in it).
        Refused when: the loop's bounds depend on data.
        """
        tree = tiling.strip_mine(self.scop, self.tree, loop, size)
        return self._step("strip_mine", {"loop": loop, "size": size}, tree, "none")

    def tile(self, loops: Sequence[str], sizes: Sequence[int]) -> Schedule:
        """Cut neighbouring nested loops into blocks and run block by block.

        Arguments: `loops`; `sizes`, one each. Statements between the loops are sunk into them.
        Before -> after: `i, j` -> `i.out, j.out, i.in, j.in`.
        Refused when: a dependence runs backwards between blocks, or bounds depend on data.
        """
        loops, sizes = _names(loops), list(sizes)
        return self._step("tile", {"loops": loops, "sizes": sizes}, tiling.tile(self.scop, self.tree, loops, sizes))

    # ---- order -----------------------------------------------------------------------------

    def interchange(self, a: str, b: str) -> Schedule:
        """Swap two nested loops.

        Arguments: `a`, `b`. Statements between them are sunk into the inner loop.
        Before -> after: `a ... b` -> `b ... a`.
        Refused when: a dependence would run backwards.
        """
        return self._step("interchange", {"a": a, "b": b}, ordering.interchange(self.scop, self.tree, a, b))

    def permute(self, *order: str | Sequence[str], loops: Sequence[str] = ()) -> Schedule:
        """Put nested loops in a given order.

        Arguments: the loops, outermost first (or as a list). Statements between them are sunk into the innermost.
        Before -> after: `i, j, k` -> `k, i, j` for `permute("k", "i", "j")`.
        Refused when: a dependence would run backwards.
        """
        names = [n for x in (*order, loops) for n in _names(x)]
        return self._step("permute", {"loops": names}, ordering.permute(self.scop, self.tree, names))

    def reverse(self, loop: str) -> Schedule:
        """Run a loop backwards.

        Arguments: `loop`. Before -> after: time `t` -> `-t`.
        Refused when: the loop carries a dependence.
        """
        return self._step("reverse", {"loop": loop}, ordering.reverse(self.scop, self.tree, loop))

    def skew(self, loop: str, by: str, factor: int) -> Schedule:
        """Make a loop run over `loop + factor * by`; it keeps its name.

        Arguments: `loop`; `by`, a loop around or inside it; `factor`, an integer.
        Before -> after: `by, loop` -> `by, loop + factor * by`.
        Refused when: `by` is inside `loop` and a dependence would run backwards.
        """
        tree = ordering.skew(self.scop, self.tree, loop, by, factor)
        return self._step("skew", {"loop": loop, "by": by, "factor": factor}, tree)

    def shift(self, loop: str, amount: int, statements: Sequence[str] | str | None = None) -> Schedule:
        """Delay statements by some iterations of a loop.

        Arguments: `loop`; `amount`, iterations (may be negative); `statements`, default all.
        Before -> after: an instance at time `t` runs at `t + amount`.
        Refused when: a dependence would run backwards.
        """
        chosen = None if statements is None else _names(statements)
        tree = ordering.shift(self.scop, self.tree, loop, amount, chosen)
        return self._step("shift", {"loop": loop, "amount": amount, "statements": chosen}, tree)

    def reorder_statements(self, order: Sequence[str]) -> Schedule:
        """Change the order of the parts of a sequence.

        Arguments: `order`, statements (one of each part to be moved) in their new order.
        Before -> after: parts `S0; S1` -> `S1; S0`.
        Refused when: a dependence would run backwards.
        """
        return self._step("reorder_statements", {"order": _names(order)},
                          ordering.reorder_statements(self.tree, _names(order)))  # fmt: skip

    def set_order(self, tree: Node | str) -> Schedule:
        """Replace the whole tree by a proposal (a strategy's, or one loaded from a file).

        Arguments: `tree`, a node or its JSON text (`poly.json_io.dump_tree`).
        Before -> after: any tree -> `tree`.
        Refused when: it breaks a dependence or does not run every instance exactly once.
        """
        from poly.json_io import dump_tree, load_tree

        text = tree if isinstance(tree, str) else dump_tree(tree)
        return self._step("set_order", {"tree": text}, load_tree(text) if isinstance(tree, str) else tree)

    # ---- joining ---------------------------------------------------------------------------

    def fuse(self, a: str, b: str, shift: int | str = 0) -> Schedule:
        """Make one loop of two neighbours.

        Arguments: `a`, `b`, where `b` follows `a` directly; `shift`, iterations by which `b`'s body
        is delayed, or "auto" for the smallest that is legal.
        Before -> after: `a: S0; b: S1` -> `a: (S0; S1)`.
        Refused when: a dependence would run backwards; bounds depend on data.
        """
        body = tuple(locate(self.tree, b).member.schedule)
        tree = fusion.fuse(self.scop, self.tree, a, b)
        if isinstance(shift, str):
            if shift != "auto":
                raise ScheduleError(f'shift is an integer or "auto", not {shift!r}')
            found = hints.smallest_delay(self, a, b)
            if found is None:
                raise IllegalSchedule(f"fuse({a}, {b}): no constant shift makes it legal")
            shift = found
        if shift:
            tree = ordering.shift(self.scop, tree, a, shift, body)
        return self._step("fuse", {"a": a, "b": b, "shift": shift}, tree)

    def distribute(self, loop: str) -> Schedule:
        """Give each part of a loop's body a loop of its own.

        Arguments: `loop`; loops between it and the parts are copied too.
        Before -> after: `i: (S0; S1)` -> `i: S0; i_1: S1`.
        Refused when: a dependence runs from a later part to an earlier one.
        """
        return self._step("distribute", {"loop": loop}, fusion.distribute(self.tree, loop))

    # ---- marks -----------------------------------------------------------------------------

    def parallel(self, loop: str) -> Schedule:
        """Run the iterations of a loop on all threads.

        Arguments: `loop`. Before -> after: the loop is marked `parallel`.
        Refused when: the loop carries a dependence (reductions included).
        """
        return self._step("parallel", {"loop": loop}, marks.mark(self.tree, loop, "parallel", None), "mark", loop)

    def vectorize(self, loop: str, lanes: int | None = None) -> Schedule:
        """Run the iterations of a loop in vector lanes.

        Arguments: `loop`; `lanes`, default what the target has for the element type.
        Before -> after: the loop is marked `vector`.
        Refused when: the loop carries a dependence other than a reduction's own.
        """
        tree = marks.mark(self.tree, loop, "vector", lanes)
        return self._step("vectorize", {"loop": loop, "lanes": lanes}, tree, "mark", loop)

    def unroll(self, loop: str, factor: int | None = None) -> Schedule:
        """Unroll a loop.

        Arguments: `loop`; `factor`, default the whole loop (which must then have a constant extent).
        Before -> after: the loop is marked `unroll`.
        Refused when: never (the order does not change).
        """
        tree = marks.mark(self.tree, loop, "unroll", factor)
        return self._step("unroll", {"loop": loop, "factor": factor}, tree, "none")

    # ---- storage ---------------------------------------------------------------------------

    def promote(self, array: str, at: str, space: Space = "local") -> Schedule:
        """Give an array a buffer of its own inside a loop.

        Arguments: `array`; `at`, the loop; `space`: register, local, shared, heap.
        Before -> after: inside each iteration of `at`, the part of `array` used is copied to a
        buffer, used there, and copied back if written.
        Refused when: iterations of a parallel loop above would disagree.
        """
        return self._step("promote", {"array": array, "at": at, "space": space},
                          storage.promote(self.scop, self.tree, array, at, space))  # fmt: skip

    def contract(self, array: str, space: Space | None = None) -> Schedule:
        """Shrink a local array to what one iteration needs.

        Arguments: `array`, local; `space`, default register, local or heap by size.
        Before -> after: the array becomes a buffer at the deepest place where no value outlives
        an iteration of the loops around it.
        Refused when: there is no such place inside a loop.
        """
        refusal: IllegalSchedule | None = None
        for tree, place in storage.contractions(self.scop, self.tree, array, space):
            if not place.loops():
                break
            try:
                return self._step("contract", {"array": array, "space": space}, tree, "storage")
            except IllegalSchedule as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal
        raise ScheduleError(f"array '{array}' has no common loop around its accesses: nothing to contract")

    def contract_all(self, arrays: Sequence[str]) -> Schedule:
        """`contract` for several arrays, each at its deepest place, with one check for all.

        Refused when one of them cannot be contracted there (single steps may find another place).
        """
        return self._batch("storage", *(("contract", {"array": a}) for a in arrays))

    # ---- the check -------------------------------------------------------------------------

    def batch(self, *steps: tuple[str, dict[str, Any]]) -> Schedule:
        """Several steps `(name, arguments)` with one check of the result (the steps between may
        be illegal). Recorded one by one. Refused when the result is illegal."""
        return self._batch("all", *steps)

    def _batch(self, changes: Changes, *steps: tuple[str, dict[str, Any]]) -> Schedule:
        schedule = replace(self, _deferred=True)
        for name, args in steps:
            schedule = getattr(schedule, name)(**args)
        schedule = replace(schedule, _deferred=self._deferred)
        if not self._deferred:
            schedule._verify(" ".join(str(s) for s in schedule.trace[len(self.trace) :]), changes, None)
        return schedule

    def _step(self, name: str, args: dict[str, Any], tree: Node, changes: Changes = "all",
              loop: str | None = None) -> Schedule:  # fmt: skip
        """Accept the new tree if it is legal, and record the step. `changes` says what the step
        can have broken: everything, the promise of the mark on `loop`, the promotions, nothing."""
        step = Step(name, args)
        new = replace(self, tree=tree, trace=(*self.trace, step))
        if not self._deferred:
            try:
                new._verify(str(step), changes, loop)
            except IllegalSchedule as error:
                advice = "" if self.terse else hints.hint(self, step)
                if not advice:
                    raise
                raise IllegalSchedule(f"{error}; {advice}", error.witness) from None
        return new

    def _verify(self, what: str, changes: Changes, loop: str | None) -> None:
        """Raise `IllegalSchedule` or `ScheduleError` unless the tree is legal."""
        from poly import legality

        violation = None
        if changes == "mark" and loop is not None:
            vector = locate(self.tree, loop).member.kind == "vector"
            violation = legality.check_parallel(self.scop, self.tree, loop, vector)
        elif changes == "storage":
            violation = legality.check_promotions(self.scop, self.tree)
        elif changes == "all":
            check_dynamic(self.scop, self.tree)
            try:
                legality.check(self.scop, self.tree)
            except IllegalSchedule as error:
                why = str(error).removeprefix(f"illegal schedule of '{self.scop.name}': ")
                raise IllegalSchedule(f"{what} is illegal: {why}", error.witness) from None
        if violation is not None:
            raise IllegalSchedule(f"{what} is illegal: {violation}", violation.witness)


def _names(names: Sequence[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


STEPS = frozenset(
    "split strip_mine tile interchange permute reverse skew shift reorder_statements fuse distribute "
    "parallel vectorize unroll promote contract set_order".split()
)
