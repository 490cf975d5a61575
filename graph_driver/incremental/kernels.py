"""A kernel of a model, and its parts: the same loops for some elements of the results, counted from 0.

Parts that differ in nothing but their place are one Scop, so they share their machine code; those at the border of an
image, where windows reach into the padding, have code of their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from polyc.emit.kernel import Kernel
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.fusion.joined import Group, text_of
from polyc.graph_driver.incremental.places import Places
from polyc.graph_driver.incremental.regions import Region, changed_results, size, whole
from polyc.graph_driver.incremental.streams import Shift, shifted_results
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.errors import PolycError
from polyc.poly.expr import Const
from polyc.poly.forms.element_sets import count
from polyc.poly.records import dataclass
from polyc.poly.rewriting.part import Part, chosen, part_of, touched
from polyc.poly.scop import Scop

KEPT = 256
"""Regions of a kernel whose parts are remembered."""
PLACES = 64
"""Regions of one size from which parts are moved: one inside, and others at each border."""


@dataclass(frozen=True, eq=False)
class Piece:
    """What runs for a changed region: `reads` has the box of each argument that the kernel takes (from 0 on), `makes`
    that of each result; `instances` run."""

    kernel: Kernel
    reads: tuple[Region, ...]
    makes: tuple[Region, ...]
    instances: int


Stream = tuple[Mapping[str, Shift], Sequence[Piece]]
"""How results move with arguments, and what makes what is new of them."""


class Parts:
    """The parts of one kernel; machine code of equal parts is shared through `code`, by the text of the Scop."""

    def __init__(self, group: Group, platform: Platform, code: dict[str, Kernel]) -> None:
        assert group.scop is not None
        self.group, self.scop, self.platform, self.code = group, group.scop, platform, code
        self.shapes = {n: tuple(_extent(e) for e in a.shape) for n, a in self.scop.arrays.items()}
        self.instances = sum(count(s.domain) for s in self.scop.statements.values())
        self._pieces: dict[tuple[tuple[str, Region], ...], Piece | None] = {}
        self._streams: dict[Hashable, Stream | None] = {}
        self._places: dict[tuple[tuple[str, tuple[int, ...]], ...], list[tuple[Places, Piece]]] = {}

    def everything(self) -> Piece:
        """The kernel itself."""
        makes = tuple(whole(self.shapes[r]) for r in self.scop.results)
        return Piece(
            self._compiled(self.scop), tuple(whole(self.shapes[a]) for a in self.scop.args), makes, self.instances
        )

    def after(self, changed: Mapping[str, Region]) -> Piece | None:
        """What has to run when these elements of arguments (by array) have changed; None: nothing depends on them.

        Raises:
            BuildError: the part has no code.
        """
        key = tuple(sorted(changed.items()))
        if key not in self._pieces:
            moved = self._elsewhere(changed)
            if moved is not None:
                return moved
            if len(self._pieces) >= KEPT:
                self._pieces.pop(next(iter(self._pieces)))
            self._pieces[key] = self._piece(changed)
        return self._pieces[key]

    def _elsewhere(self, changed: Mapping[str, Region]) -> Piece | None:
        """What ran for a region of the same size at another place, if the same happens here."""
        for places, piece in self._places.get(_sizes(changed), ()):
            move = places.at(changed)
            if move is not None:
                reads = tuple(_moved(move[a], r) for a, r in zip(self.scop.args, piece.reads, strict=True))
                makes = tuple(_moved(move[a], r) for a, r in zip(self.scop.results, piece.makes, strict=True))
                return Piece(piece.kernel, reads, makes, piece.instances)
        return None

    def _piece(self, changed: Mapping[str, Region]) -> Piece | None:
        try:
            moved = changed_results(self.scop, changed)
            if not moved:
                return None
            part, piece = self.making(moved)
        except PolycError:  # loops that have no parts run whole
            return self.everything()
        alike = self._places.setdefault(_sizes(changed), [])
        alike.append((Places(self.scop, self.shapes, changed, part), piece))
        del alike[:-PLACES]
        return piece

    def making(self, wanted: Mapping[str, Region]) -> tuple[Part, Piece]:
        """What makes these elements of results.

        Raises:
            PolycError: the loops have no parts.
        """
        part = chosen(self.scop, {r: wanted.get(r, _nothing(self.shapes[r])) for r in self.scop.results})
        boxes = dict(part.boxes)
        for name in self.scop.args:
            boxes[name] = tuple(touched(self.scop, name, part.runs) or _nothing(self.shapes[name]))
        part = Part(part.runs, boxes)
        small = part_of(self.scop, part)
        instances = sum(count(d) for d in part.runs.values())
        reads = tuple(tuple(part.boxes[a]) for a in self.scop.args)
        makes = tuple(tuple(part.boxes[r]) for r in self.scop.results)
        return part, Piece(self._compiled(small), reads, makes, instances)

    def shifted(self, moved: Mapping[str, Shift], changed: Mapping[str, Region]) -> Stream | None:
        """Of results that move with arguments how they do, and what makes the rest of them; None: none moves.

        Raises:
            BuildError: a part has no code.
        """
        key = tuple(sorted(moved.items())), tuple(sorted(changed.items()))
        if key not in self._streams:
            if len(self._streams) >= KEPT:
                self._streams.pop(next(iter(self._streams)))
            self._streams[key] = self._stream(moved, changed)
        return self._streams[key]

    def _stream(self, moved: Mapping[str, Shift], changed: Mapping[str, Region]) -> Stream | None:
        try:
            results = shifted_results(self.scop, self.shapes, moved, changed)
            if results is None:
                return None
            return results, [self.making({n: r})[1] for n, shift in results.items() for r in shift.fresh]
        except PolycError:  # loops that have no parts run whole
            return None

    def _compiled(self, scop: Scop) -> Kernel:
        text, key = text_of(scop)
        if key not in self.code:
            self.code[key] = compile_operator(scop, self.platform.machine, threads=self.platform.threads)
        return self.code[key]


def _sizes(changed: Mapping[str, Region]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(sorted((n, tuple(b - a for a, b in r)) for n, r in changed.items()))


def _moved(by: Sequence[int], region: Region) -> Region:
    """An empty region stays where it is."""
    return tuple((a + n, b + n) for (a, b), n in zip(region, by, strict=True)) if size(region) else region


def _nothing(shape: Sequence[int]) -> Region:
    return tuple((0, 0) for _ in shape)


def _extent(e: object) -> int:
    if not isinstance(e, Const):
        raise PolycError("sizes are symbols")
    return int(e.value)
