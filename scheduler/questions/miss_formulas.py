"""Cache misses of a schedule as formulas in the sizes: which reuse is kept, and how many lines are fetched then.

The model is that of `polyc.scheduler.questions.misses` (a fully associative cache that replaces the line least
recently used; volumes of data of Wolf & Lam, PLDI 1991): where all that one iteration of a loop touches stays in the
cache, every line is fetched once in each execution of that loop. Which loop this is depends on the cache; for each of
them both numbers are counted exactly for all sizes. In a cache with room for about one iteration part of the reuse is
kept: the number is at most that of the first case whose iteration fits twice, at least that of the first whose
iteration would fit a cache of twice the size (`tests/scheduler/test_miss_formulas.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import islpy as isl

from polyc.poly.closed_forms.counting import count_or_bound, parametric_image
from polyc.poly.closed_forms.formula import Formula
from polyc.poly.errors import ScheduleError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Filter, Node, Promote, Sequence, walk
from polyc.scheduler.arguments import positive
from polyc.scheduler.questions.counts import region
from polyc.scheduler.questions.misses import Counter, Part, everything, narrowed


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """If one iteration of `loop` stays in the cache (`touched` lines, in sizes and the values of this loop and of those
    around it), each array's accesses fetch `fetched` lines. The last case has no loop: nothing stays. `statements`:
    where loops part, the case is of these alone; each part has a case of its own that counts, and they add up (what one
    part leaves for the next is counted in both)."""

    loop: str | None
    touched: Formula | None
    fetched: Mapping[str, Formula]
    statements: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = ", ".join(f"{array} {formula}" for array, formula in self.fetched.items())
        of = f"{', '.join(self.statements)}: " if self.statements else ""
        if self.loop is None:
            return f"{of}if no iteration stays: {lines}"
        return f"{of}if one iteration of {self.loop} stays ({self.touched} lines): {lines}"


def miss_formulas(scop: Scop, tree: Node, line: int, always: int = 0) -> Iterator[Case]:
    """The cases of all loops, outermost first: the first that holds counts; where loops part, the first of each part.
    Each is counted when it is asked for.

    Args:
        line: bytes of a line.
        always: lines that every cache in question holds. What comes after a loop whose iteration never touches more
            is left out: that loop's iteration stays.

    Raises:
        ScheduleError: loops depend on data.
        CountingError: a footprint is too hard.
    """
    if any(s.dynamic for s in scop.statements.values()):
        raise ScheduleError(f"the misses of {scop.name} are not known: its loops depend on data")
    positive(line, "size of a cache line")
    yield from _Cases(Counter(scop, tree, 0, line), always).of(tree, None, everything(scop), ())


class _Cases:
    """The cases of one schedule, part by part."""

    def __init__(self, counter: Counter, always: int) -> None:
        self.counter, self.scop, self.always = counter, counter.scop, always

    def of(self, node: Node, around: str | None, part: Part, named: tuple[str, ...]) -> Iterator[Case]:
        """Of a part of the tree, which stands right inside the loop `around`."""
        if isinstance(node, Band):
            yield from self.band(node, around, part, named)
        elif isinstance(node, Sequence) and any(isinstance(n, Band) for n in walk(node)):
            for f in node.filters:
                yield from self.of(f, around, part, tuple(f.domain))
        elif isinstance(node, Filter):
            yield from self.of(node.child, around, narrowed(part, node), named)
        elif isinstance(node, Promote):
            yield from self.of(node.child, around, part, named)
        else:
            yield Case(None, None, self.fetched(around, part), named)

    def band(self, band: Band, around: str | None, part: Part, named: tuple[str, ...]) -> Iterator[Case]:
        """Of the loops of a band and what is in them."""
        for member in band.members:
            here = region(self.scop, self.counter.tree, member.name)
            images = self.counter.images(here, part)
            touched = here.nothing()
            for image in images.values():
                touched = touched + count_or_bound(parametric_image(image, here.names), here.context)
            yield Case(member.name, touched, self.fetched(around, part), named)
            if _fits(images.values(), self.always):
                return
            around = member.name
        yield from self.of(band.child, around, part, named)

    def fetched(self, loop: str | None, part: Part) -> Mapping[str, Formula]:
        """Each line once in each iteration of the loop (and of those around it)."""
        images = self.counter.images(region(self.scop, self.counter.tree, loop), part)
        context = self.scop.context.params()
        return {array: count_or_bound(image.wrap().flatten(), context) for array, image in images.items()}


def _fits(images: Iterable[isl.Map], room: int) -> bool:
    """Whether the lines of one iteration are never more than that, whatever the sizes: those of the boxes around
    them."""
    for image in images:
        apart, lines = image.reverse().apply_range(image).deltas(), 1
        for k in range(apart.dim(isl.dim_type.set)):
            most = apart.dim_max_val(k)
            if not most.is_int():
                return False
            lines *= most.to_python() + 1
        room -= lines
    return room >= 0
