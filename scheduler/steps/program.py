"""Steps that replace the Scop by an equivalent one: `inline rfactor`."""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from polyc.poly.errors import IllegalSchedule
from polyc.scheduler.core import Core
from polyc.scheduler.transformations import inlining, rfactoring


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

    def rfactor(self, loop: str) -> Self:
        """Split a reduction in two: partial results per iteration of a loop, then their combination.

        Arguments: `loop`, over which a reduction runs; afterwards it carries none, so that it can
        be parallel or vector. The partial results are a local array `<array>_part`.
        Before -> after: `k: C[i] += f(k)` -> `k.init: C_part[i, k] = 0; k: C_part[i, k] += f(k);
        k.join: C[i] += C_part[i, k]`.
        Refused when: something in the loop looks at a result before it is complete; the loop runs
        over no reduction, bounds of loops around it depend on data, or reassociation is forbidden.
        """
        loop = self._one(loop)
        if self._deferred:  # the new program order is taken from the tree, so that must be legal
            replace(self, _deferred=False)._verify(lambda: f"the schedule before rfactor(loop={loop!r})", "all", None)
        done = rfactoring.rfactor(self.scop, self.tree, loop)
        if done.violation is not None:
            raise IllegalSchedule(f"rfactor(loop={loop!r}) is illegal", done.violation, terse=self.terse)
        return self._step("rfactor", {"loop": loop}, done.tree, scop=done.scop)
