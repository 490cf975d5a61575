"""Cache misses of a schedule as formulas in the sizes: which reuse is kept, and how many lines are fetched then.

The model is that of `polyc.scheduler.questions.misses` (a fully associative cache that replaces the line least
recently used; volumes of data of Wolf & Lam, PLDI 1991): where all that one iteration of a loop touches stays in the
cache, every line is fetched once in each execution of that loop. Which loop this is depends on the cache; for each of
them both numbers are counted exactly for all sizes. Between two cases, in a cache with room for about one iteration,
part of the reuse is kept, and the number is between theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polyc.poly.closed_forms.counting import count_or_bound, parametric_image
from polyc.poly.closed_forms.formula import Formula
from polyc.poly.errors import ScheduleError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Node, Promote
from polyc.scheduler.arguments import positive
from polyc.scheduler.questions.counts import region
from polyc.scheduler.questions.misses import Counter


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """If one iteration of `loop` stays in the cache (`touched` lines, in sizes and the values of this loop and of those
    around it), each array's accesses fetch `fetched` lines. The last case has no loop: nothing stays."""

    loop: str | None
    touched: Formula | None
    fetched: Mapping[str, Formula]

    def __str__(self) -> str:
        lines = ", ".join(f"{array} {formula}" for array, formula in self.fetched.items())
        if self.loop is None:
            return f"if no iteration stays: {lines}"
        return f"if one iteration of {self.loop} stays ({self.touched} lines): {lines}"


def miss_formulas(scop: Scop, tree: Node, line: int) -> tuple[Case, ...]:
    """The cases of the loops around all statements, outermost first: the first that holds counts.

    Args:
        line: bytes of a line.

    Raises:
        ScheduleError: loops depend on data.
        CountingError: a footprint is too hard.
    """
    if any(s.dynamic for s in scop.statements.values()):
        raise ScheduleError(f"the misses of {scop.name} are not known: its loops depend on data")
    positive(line, "size of a cache line")
    counter, every, around, cases = Counter(scop, tree, 0, line), frozenset(scop.statements), None, []
    for loop in _around_all(tree):
        here = region(scop, tree, loop)
        touched = here.nothing()
        for image in counter.images(here, every).values():
            touched = touched + count_or_bound(parametric_image(image, here.names), here.context)
        cases.append(Case(loop, touched, _fetched(counter, scop, tree, around, every)))
        around = loop
    return (*cases, Case(None, None, _fetched(counter, scop, tree, around, every)))


def _around_all(node: Node) -> Iterator[str]:
    while not hasattr(node, "filters"):
        if isinstance(node, Band):
            yield from (m.name for m in node.members)
        elif not isinstance(node, Filter | Promote):
            return
        node = node.child


def _fetched(
    counter: Counter, scop: Scop, tree: Node, loop: str | None, every: frozenset[str]
) -> Mapping[str, Formula]:  # fmt: skip
    images = counter.images(region(scop, tree, loop), every)
    return {array: count_or_bound(image.wrap().flatten(), scop.context.params()) for array, image in images.items()}
