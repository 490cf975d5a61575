"""Why a schedule tree is illegal, in words and as sets."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import islpy as isl

from polyc.poly.forms.conditions import Condition
from polyc.poly.ordering.promotion import CallerEnd
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Node, Promote
from polyc.poly.witnesses.witness import Case, Witness, caller_witness, make_witness

Rule = Literal["order", "unordered", "parallel", "vector", "promotion", "delayed"]


@dataclass(frozen=True, eq=False)
class Violation:
    """Conflicting pairs (program order: source -> sink) that break `rule` in `tree`; `loop` carries them.

    `sizes` are the parameters for which such a pair exists. `pairs` is None where the caller is
    the other `end`: a promotion (`promote`) that loses a result or misses an input; `detail` says so.
    A "delayed" source is the work of a step that replaces the Scop: the value or update that
    would come after the sink, which touches `array`.
    """

    scop: Scop
    tree: Node
    rule: Rule
    pairs: isl.Map | None
    sizes: isl.Set
    loop: str | None = None
    detail: str = ""
    promote: Promote | None = None
    end: CallerEnd | None = None
    array: str | None = None

    @cached_property
    def witness(self) -> Witness | None:
        """The smallest counterexample (computed when asked for)."""
        case = Case(self.scop, self.tree, self.rule, self.loop, self.promote)
        if self.pairs is not None:
            return make_witness(self.scop, self.pairs, case, self.array)
        return None if self.end is None else caller_witness(self.scop, self.end.access, self.end.instances, case)

    @cached_property
    def legal_if(self) -> Condition:
        """The exact sizes for which the whole tree is legal (over all of its violations)."""
        from polyc.poly.legality import legal_sizes

        if self.rule == "delayed":  # the tree is not to blame
            return Condition(self.scop.context.subtract(self.sizes), self.scop.context)
        return Condition(legal_sizes(self.scop, self.tree), self.scop.context)

    @property
    def located(self) -> str:
        """The source lines of both accesses, "" when unknown."""
        return "" if self.witness is None else self.witness.located

    def __str__(self) -> str:
        w = self.witness
        if w is None:
            return self.detail
        return (f"with {w.sizes}, " if w.params else "") + f"{w.why}, but {self.done}"

    @property
    def done(self) -> str:
        """What the new schedule does to the witness's pair."""
        w = self.witness
        assert w is not None
        source, sink = w.instance("source"), w.instance("sink")
        if self.rule == "order":
            at = f" (at loop '{self.loop}')" if self.loop else ""
            return f"the new schedule runs {sink} before {source}{at}"
        if self.rule == "unordered":
            return "the new schedule does not order the two"
        if self.rule in ("promotion", "delayed"):
            return self.detail
        return f"they are different iterations of the {self.rule} loop '{self.loop}'"

    def explained(self) -> list[str]:
        """The lines of a detailed message: the pair, where it is written, and the two values."""
        w = self.witness
        if w is None:
            return [self.detail]
        lines = [f"sizes:    {w.sizes or 'the only ones'}", f"conflict: {w.why}", f"but       {self.done}"]
        for role, span in (("first", w.source_span), ("then", w.sink_span)):
            if span is not None:
                lines.append(f"{role + ':':<9} {span}: {span.text.strip()}")
        values = w.values
        if values is not None:
            lines.append(f"values:   {values}")
            lines.append("script:   error.witness.script() shows this with NumPy alone")
        return lines
