"""Steps that replace the Scop by an equivalent one: `inline outline split_sum expand coalesce split_statement
unite_statements gather read_first rfactor eliminate normalise in_words relayout recompute`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.tree import of_scop
from polyc.scheduler.arguments import positive
from polyc.scheduler.core import Core, as_list
from polyc.scheduler.step import Step
from polyc.scheduler.transformations import (
    expansion,
    gathering,
    inlining,
    outlining,
    parting,
    rfactoring,
)


class Program(Core):
    """Part of `Schedule`."""

    def inline(self, array: str) -> Self:
        """Compute the values of an array where they are read.

        Arguments: `array`, written by plain assignments.
        Before -> after: `t[i] = f(i); B[j] = t[j + 1]` -> `B[j] = f(j + 1)`; a local array and its
        writers are gone.
        Refused when: something that `f` reads is overwritten before the value is used; which
        value a read sees depends on data; the array is computed from its own values.
        """
        done = inlining.inline(self.scop, array)
        if done.violation is not None:
            raise IllegalSchedule(f"inline(array={array!r}) is illegal", done.violation, terse=self.terse)
        tree = inlining.without(self.tree, frozenset(done.scop.statements), array) if done.removed else self.tree
        return self._step("inline", {"array": array}, tree, scop=done.scop)

    def outline(
        self, statement: str, loops: Sequence[str] | str, array: str | None = None, at: str | None = None
    ) -> Self:
        """Compute factors of a sum ahead: the inverse of `inline`.

        Arguments: `statement`, which adds up products; `loops`, some of its loops: the factors that no other loop
        moves become one element of a local array with these subscripts, in this order (with the sums of loops that
        they depend on, where those are fewer: `X[i + a] if i + a < N else 0` has one); `array`, its name; `at`, a loop
        around the statement in each of whose iterations that is done, default once before the whole nest.
        Before -> after: `k: C[i, j] += alpha * A[i, k] * B[k, j]` -> `i_1: k_1: A_part[i, k] = alpha * A[i, k]`,
        then `k: C[i, j] += A_part[i, k] * B[k, j]`. What is subtracted is negated there.
        Refused when: something that the factors read is overwritten before the element is used; the factors depend
        on data that other loops move; reassociation is forbidden.
        """
        names = as_list(loops)
        place = None if at is None else self._one(at)
        self._legal_before(f"outline(statement={statement!r})")
        done = outlining.outline(self.scop, self.tree, statement, names, array, place)
        args = {"statement": statement, "loops": names, "array": array, "at": place}
        args = {k: v for k, v in args.items() if v is not None}
        if done.violation is not None:
            raise IllegalSchedule(f"{Step('outline', args)} is illegal", done.violation, terse=self.terse)
        return self._step("outline", args, done.tree, scop=done.scop)

    def split_sum(self, statement: str) -> Self:
        """Make one update for each summand.

        Arguments: `statement`, which adds a sum.
        Before -> after: `C[i, j] += A[i, k] * B[j, k] + B[i, k] * A[j, k]` -> `C[i, j] += A[i, k] * B[j, k]`, then
        `C[i, j] += B[i, k] * A[j, k]` in the same loops.
        Refused when: it adds one product only; reassociation is forbidden.
        """
        self._legal_before(f"split_sum(statement={statement!r})")
        scop, tree = outlining.split_sum(self.scop, self.tree, statement)
        return self._step("split_sum", {"statement": statement}, tree, scop=scop)

    def expand(self, array: str, loop: str) -> Self:
        """Give a local array a copy for each iteration of a loop.

        Arguments: `array`, local; `loop`, around everything that touches it.
        Before -> after: `r: (p: t[p] = f(r, p); p_1: A[r, p] = t[p])` -> `r: (p: t[r, p] = f(r, p); p_1: A[r, p] =
        t[r, p])`: iterations of `r` no longer wait for each other. `contract` undoes it.
        Refused when: a value is read in another iteration than that which has written it.
        """
        loop = self._one(loop)
        scop = expansion.expand(self.scop, self.tree, array, loop)
        return self._step("expand", {"array": array, "loop": loop}, self.tree, scop=scop)

    def coalesce(self, array: str, into: str) -> Self:
        """Keep the elements of a local array in those of another, which they are copied from or to.

        Arguments: `array`, local; `into`, an array that the caller gives or gets, or another local one.
        Before -> after: `w[i] = A[i]; k: w[i] -= f(k); A[i] = w[i] / 2` -> `k: A[i] -= f(k); A[i] = A[i] / 2`; the
        local array and the copies are gone.
        Refused when: a read would see another value, as both elements are alive at one time; no statement says which
        element belongs to which; the types differ.
        """
        self._legal_before(f"coalesce(array={array!r})")
        from polyc.scheduler.transformations import coalescing

        scop, removed = coalescing.coalesce(self.scop, array, into)
        tree = inlining.without(self.tree, frozenset(scop.statements), array) if removed else self.tree
        return self._step("coalesce", {"array": array, "into": into}, tree, scop=scop)

    def split_statement(self, statement: str, loop: str, name: str | None = None) -> Self:
        """Make the instances of a statement inside a loop a statement of their own, for steps that are for them alone.

        Arguments: `statement`; `loop`, around some of its instances; `name`, what these are called (default: a new
        name).
        Before -> after: `i: S; i_1: S` -> `i: S; i_1: S_part` for `split_statement("S", "i_1")`.
        Refused when: never (the order does not change); all of its instances or none are inside the loop.
        """
        loop = self._one(loop)
        self._legal_before(f"split_statement(statement={statement!r})")
        scop, tree = parting.split_statement(self.scop, self.tree, statement, loop, name)
        args = {"statement": statement, "loop": loop} | ({} if name is None else {"name": name})
        return self._step("split_statement", args, tree, "none", scop=scop)

    def unite_statements(self, first: str, second: str) -> Self:
        """Make one statement of two that compute the same in the same loops, each for some of the iterations.

        Arguments: `first`, whose name stays; `second`, next to it.
        Before -> after: `i: (S0 where j < i; S1 where j >= i)` -> `i: S0`.
        Refused when: never (the order does not change); statements that differ, or share an iteration.
        """
        self._legal_before(f"unite_statements(first={first!r}, second={second!r})")
        scop, tree = parting.unite_statements(self.scop, self.tree, first, second)
        return self._step("unite_statements", {"first": first, "second": second}, tree, "none", scop=scop)

    def read_first(self, statement: str, read: str, array: str | None = None) -> Self:
        """Copy an element that a statement reads into a local array just before it (node splitting).

        Arguments: `statement`; `read`, as text, such as "A[i + 1]"; `array`, the name of the local array.
        Before -> after: `i: (A[i] = f(i); B[i] = A[i + 1])` -> `i: (A[i] = f(i); A_read[i] = A[i + 1]; B[i] =
        A_read[i])`: what reads the old element may then move before what overwrites it.
        Refused when: never (the order does not change); the statement does not read that; data decide how often it
        runs.
        """
        from polyc.scheduler.transformations import reading

        self._legal_before(f"read_first(statement={statement!r})")
        scop, tree = reading.read_first(self.scop, self.tree, statement, read, array)
        args = {"statement": statement, "read": read} | ({} if array is None else {"array": array})
        return self._step("read_first", args, tree, "none", scop=scop)

    def gather(
        self,
        statement: str,
        over: Sequence[str] | str | None = None,
        phases: bool = False,
        keep: Sequence[str] | str | None = None,
    ) -> Self:
        """Run an update that scatters over the elements that it updates: each is the sum of all that goes there.

        Arguments: `statement`, an update such as `W[f(i)] += e(i)`; `over`, the iterators that each element is summed
        over, default those that give the simplest bounds; `phases`, where f has a stride (`2 * o + k`), a statement for
        each remainder, without divisions; `keep`, the outermost loops that stay, default those with other statements.
        Before -> after: `o: k: X[2 * o + k] += e(o, k)` -> `X_0: o: X[X_0] += e(o, X_0 - 2 * o)`: `X_0` is parallel.
        Refused when: a dependence would run backwards; data decide the element; other statements are in its loops.
        """
        summed = None if over is None else as_list(over)
        kept = None if keep is None else as_list(keep)
        done = gathering.gather(self.scop, self.tree, statement, summed, phases, kept)
        args = {"statement": statement, "over": summed, "phases": phases or None, "keep": kept}
        args = {k: v for k, v in args.items() if v is not None}
        moved = replace(self, tree=done.order, _deferred=False)
        moved._verify(lambda: str(Step("gather", args)), "all", None)
        return self._step("gather", args, done.tree, "none", scop=done.scop)

    def eliminate(self) -> Self:
        """Leave out what the program computes in vain or twice, element by element, and arrays that only hand it on.

        Arguments: none; the first of all steps.
        Before -> after: `i < 64: t[i] = f(i); i < 64: u[i] = f(i); i < 32: B[i] = t[i] + u[i]` -> `i < 32: t[i] =
        f(i); i < 32: B[i] = t[i] + t[i]`. Of each statement the hull of the instances stays whose values reach a
        result; of arrays with the same values one; of arrays whose elements one statement reads, each once, none.
        Refused when: there is nothing to leave out; earlier steps have changed the order.
        """
        from polyc.poly.rewriting.waste import without_waste

        if self.trace or self.tree != of_scop(self.scop.tree, self.scop):
            raise ScheduleError("eliminate is the first of all steps: earlier ones have changed the order")
        scop = without_waste(self.scop)
        if scop is self.scop:
            raise ScheduleError("eliminate: every instance is needed, and no array has the values of another")
        return self._step("eliminate", {}, scop.tree, "none", scop=scop)

    def normalise(self) -> Self:
        """Bring loops, arrays and choices to their normal form: iterators without offsets, statements without iterators
        of blocks, a loop for each digit that is used of one that counts the points of a box, arrays with the dimensions
        that their subscripts mean, `t = a if c else b` for `t = b; if c: t = a`.

        Arguments: none; before all steps that change the order.
        Before -> after: `b: i in 32 * b .. 32 * b + 31: S[b, i]` -> `b = i // 32: i: S[i]`; `k = 1 .. K: Y[k - 1] +=
        X[c] * W[c, k - 1]` -> `k = 0 .. K - 1: Y[k] += X[c] * W[c, k]`; `p = 0 .. 99: Y[p // 10, p % 10] = X[p]` ->
        `i = 0 .. 9: j = 0 .. 9: Y[i, j] = X[i, j]`. The order stays the same.
        Refused when: all of it has that form; earlier steps have changed the order.
        """
        from polyc.poly.rewriting.loop_form import normal_loops

        if self.tree != of_scop(self.scop.tree, self.scop):
            raise ScheduleError("normalise is for loops as the program has them: earlier steps have changed the order")
        scop = normal_loops(self.scop)
        if scop is self.scop:
            raise ScheduleError("normalise: loops and choices have their normal form")
        return self._step("normalise", {}, scop.tree, "none", scop=scop)

    def in_words(self, statement: str, numbers: int) -> Self:
        """Multiply words of two 16-bit integers, or of four bytes, in a sum of products.

        Arguments: `statement`, a sum of 32-bit integers; `numbers` in a word: 2, or 4 where one factor is from 0 to 255
        and the other one from -128 to 127. Before steps that say how loops run.
        Before -> after, for 2: `C[i] += i32(A[i, k]) * i32(x[k])` -> `a[i, w] = i32(A[i, 2w]) & 65535 |
        i32(A[i, 2w + 1]) << 16`, `b[w]` likewise, `C[i] += dot_pairs(a[i, w], b[w])`: exact, one instruction on x86.
        Refused when: it adds up something else; factors may be larger; a loop of the sum has bounds that other loops
        move; its nest changes what it multiplies; loops are marked, or arrays promoted.
        """
        from polyc.scheduler.transformations.added import program
        from polyc.scheduler.transformations.words import in_words

        self._legal_before(f"in_words(statement={statement!r})")
        if self.tree != program(self.tree):
            raise ScheduleError("in_words comes before steps that say how loops run or promote arrays")
        scop = in_words(replace(self.scop, tree=self.tree), statement, numbers)
        return self._step("in_words", {"statement": statement, "numbers": numbers}, scop.tree, "none", scop=scop)

    def relayout(self, array: str, layout: Sequence[int] | Sequence[Sequence[int]]) -> Self:
        """Store a local array otherwise.

        Arguments: `array`, local; `layout`, as that of `promote`: the order of its dimensions, outermost first, or
        `(dimension, divisor, modulus)` triples where its sizes are numbers.
        Before -> after, for the order `[1, 0]`: `t[i, j] = f(i, j); C[i] += t[i, k]` -> `t[j, i] = f(i, j); C[i] +=
        t[k, i]`: what one loop reads lies side by side.
        Refused when: the array is not local, or has a buffer already; a layout gives two elements one place.
        """
        from polyc.scheduler.transformations import storing

        scop, triples = storing.relayout(self.scop, self.tree, array, layout)
        return self._step("relayout", {"array": array, "layout": triples}, self.tree, "none", scop=scop)

    def recompute(self, array: str, loop: str, size: int = 1) -> Self:
        """Compute what a loop reads of a local array anew for each of its iterations (overlapped tiling).

        Arguments: `array`, local; `loop`, around all that reads it and nothing that writes it; `size`, iterations of it
        that have one copy (then the loop is to be split in such blocks).
        Before -> after: `i: t[i] = f(i); r: B[r] = t[r] + t[r + 1]` -> `r_1: i in r_1 .. r_1 + 1: t[r_1, i] = f(i);
        r: B[r] = t[r, r] + t[r, r + 1]`: no iteration of `r` waits for another, so `r_1` can be fused with `r`, and
        `t` contracted to what one iteration reads. What several iterations read is computed several times.
        Refused when: never (each read sees the same value); elements of the array are computed from others of it; a
        statement that writes it shares all its loops with others, or data decide how often it runs.
        """
        from polyc.scheduler.transformations import recomputing

        loop = self._one(loop)
        positive(size, "size")
        self._legal_before(f"recompute(array={array!r})")
        scop, tree = recomputing.recompute(self.scop, self.tree, array, loop, size)
        args: dict[str, object] = {"array": array, "loop": loop} | ({"size": size} if size > 1 else {})
        return self._step("recompute", args, tree, "none", scop=scop)

    def _legal_before(self, what: str) -> None:
        """The new program order is taken from the tree, so that must be legal."""
        if self._deferred:
            replace(self, _deferred=False)._verify(lambda: f"the schedule before {what}", "all", None)

    def rfactor(self, loop: str, first: bool = False) -> Self:
        """Split a reduction in two: partial results per iteration of a loop, then their combination.

        Arguments: `loop`, over which a reduction runs; afterwards it carries none, so that it can
        be parallel or vector. The partial results are a local array `<array>_part`; its last dimension
        is the loop's, its first one with `first`: the results of one iteration then lie side by side.
        Before -> after: `k: C[i] += f(k)` -> `k.init: C_part[i, k] = 0; k: C_part[i, k] += f(k);
        k.join: C[i] += C_part[i, k]`.
        Refused when: something in the loop looks at a result before it is complete; the loop runs
        over no reduction, bounds of loops around it depend on data, or reassociation is forbidden.
        """
        loop = self._one(loop)
        self._legal_before(f"rfactor(loop={loop!r})")
        done = rfactoring.rfactor(self.scop, self.tree, loop, first)
        if done.violation is not None:
            raise IllegalSchedule(f"rfactor(loop={loop!r}) is illegal", done.violation, terse=self.terse)
        arguments: dict[str, object] = {"loop": loop} | ({"first": True} if first else {})
        return self._step("rfactor", arguments, done.tree, scop=done.scop)
