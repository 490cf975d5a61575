"""What a kernel offers: its loops with its images in other formats, and what they should cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from polyc.graph_driver.fusion.joined import Group, text_of
from polyc.graph_driver.fusion.rearranging import Rearranged, stored_as
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.layouts.formats import Format, channel_dimension
from polyc.poly.errors import ScopError
from polyc.poly.expr import Const, Load, Var, loads
from polyc.poly.records import dataclass
from polyc.poly.rewriting.channels import LAST, Channels, store_channels
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.stored import Layout
from polyc.poly.scop import Array, Scop
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Level, at_level, nominal, predict
from polyc.scheduler.cost.tile_plan import constant_layouts
from polyc.scheduler.cost.work import work_of
from polyc.scheduler.recognition.contraction import recognise

MOST_SHAPES = 3  # of images of one kernel, each with its own format


@dataclass(frozen=True)
class Offer:
    """A kernel with `formats` of its images (by tensor, sorted): its Scop, the layouts of its arguments, and cycles."""

    formats: tuple[tuple[str, Format], ...]
    scop: Scop
    layouts: Mapping[str, Layout]
    cycles: float

    @property
    def mixed(self) -> bool:
        """Whether it reads one format and writes another: a conversion inside a kernel."""
        return len({f for _, f in self.formats}) > 1


class Offers:
    """Offers of a graph's kernels; those of equal kernels are made once."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph, self.target = graph, target
        self._known: dict[
            tuple[str, tuple[tuple[str, Format], ...]], tuple[Scop, Mapping[str, Layout], float] | None
        ] = {}

    def of(self, group: Group, choices: Mapping[str, Sequence[Format]]) -> list[Offer]:
        """All combinations of formats of the images of `choices` that the kernel can have; images of one shape
        have one format in it."""
        shapes = {t: self.graph.tensors[t].shape for t in (*group.inputs, *group.outputs) if t in choices}
        kinds = list(dict.fromkeys(shapes.values()))
        if len(kinds) > MOST_SHAPES:
            return list(self._given(group, shapes))
        each = [next(choices[t] for t, s in shapes.items() if s == kind) for kind in kinds]
        out = []
        for picked in product(*each):
            by_shape = dict(zip(kinds, picked, strict=True))
            offer = self.offer(group, {t: by_shape[s] for t, s in shapes.items()})
            if offer is not None:
                out.append(offer)
        return out

    def _given(self, group: Group, shapes: Mapping[str, object]) -> Iterator[Offer]:
        offer = self.offer(group, dict.fromkeys(shapes, Format()))
        if offer is not None:
            yield offer

    def offer(self, group: Group, formats: Mapping[str, Format]) -> Offer | None:
        """One combination; None when the kernel cannot have it."""
        scop = group.scop
        assert scop is not None
        of_array = dict(zip((*scop.args, *scop.results), (*group.inputs, *group.outputs), strict=True))
        if len(set(formats.values())) > 1 and not _is_product(scop):
            return None  # (measured: a pool that converts takes four times as long)
        by_array = tuple(sorted((a, formats[t]) for a, t in of_array.items() if t in formats))
        key = (group.key, by_array)
        if key not in self._known:
            self._known[key] = self._made(scop, of_array, dict(by_array))
        known = self._known[key]
        return None if known is None else Offer(tuple(sorted(formats.items())), *known)

    def _made(
        self, scop: Scop, of_array: Mapping[str, str], formats: Mapping[str, Format]
    ) -> tuple[Scop, Mapping[str, Layout], float] | None:
        constants = frozenset(a for a, t in of_array.items() if self.graph.tensors[t].const is not None)
        wanted: dict[str, Channels] = {}
        for array, f in formats.items():
            if f.given:
                continue
            shape = tuple(int(n) for n in self.graph.tensors[of_array[array]].shape or () if isinstance(n, int))
            dim = channel_dimension(scop.arrays[array], shape)
            if dim is None:
                return None
            wanted[array] = Channels(dim, f.block)
        wanted |= self._same_memory(scop, of_array, constants, max((c.block for c in wanted.values()), default=None))
        try:
            stored, layouts = store_channels(scop, wanted, constants) if wanted else (scop, {})
        except ScopError:
            return None
        return stored, layouts, self._cycles(stored, constants)

    def _same_memory(
        self, scop: Scop, of_array: Mapping[str, str], constants: frozenset[str], block: int | None
    ) -> dict[str, Channels]:
        """Images of one pixel: their channels lie last, and in blocks, whatever the format; so do their subscripts."""
        found: dict[str, Channels] = {}
        for array, tensor in of_array.items() if block is not None else ():
            shape = self.graph.tensors[tensor].shape or ()
            if array in constants or len(shape) != 4 or any(n != 1 for n in shape[2:]) or not isinstance(shape[1], int):
                continue
            dim = channel_dimension(scop.arrays[array], shape)
            if dim is not None and block is not None and shape[1] > 1:
                found[array] = Channels(dim, block if block and shape[1] % block == 0 else LAST)
        return found

    def _cycles(self, scop: Scop, constants: frozenset[str]) -> float:
        """Predicted for a nominal machine, as the kernel will be: constants in panels, locals no larger than needed."""
        for array, layout in constant_layouts(scop, constants, self.target).items():
            scop = relayout(scop, array, layout)
        levels: dict[str, Level | None] = {}
        waits = 0.0
        machine = nominal(self.target)
        touching: dict[str, list[Load]] = {}
        for s in scop.statements.values():
            for load in (s.target, *loads(s.value)):
                touching.setdefault(load.array, []).append(load)
        for name, a in scop.arrays.items():
            levels[name] = "l3" if name in constants else at_level(_size(a), self.target)
            if a.kind == "local":  # one nest fills it before the next reads it: neither hides the other's waiting
                level = at_level(_slice(a, touching.get(name, [])), self.target)
                if level:
                    fetched = 1 if level == "l2" else 2  # beyond L2 a line is fetched before it is written, too
                    waits += _size(a) * (fetched / machine.read[level] + 1 / machine.write[level])
                levels[name] = None
        work = work_of(scop, self.target, levels)
        return float("inf") if work is None else predict(work, machine).seconds * machine.hertz + waits


def _is_product(scop: Scop) -> bool:
    return any(recognise(s) is not None for s in scop.statements.values())


def _size(array: Array) -> int:
    size = array.dtype.bytes
    for e in array.shape:
        size *= int(e.value) if isinstance(e, Const) else 1
    return size


def _slice(array: Array, accesses: list[Load]) -> int:
    """Bytes of a local array that are alive at once when the loops over its first dimensions are fused."""
    first = 0
    while first < len(array.shape) and all(_plain(a, first) for a in accesses):
        first += 1
    return _size(replace(array, shape=array.shape[first:]))


def _plain(load: Load, dim: int) -> bool:
    return isinstance(load.index[dim], (Var, Const))


def applied(graph: Graph, group: Group, offer: Offer) -> tuple[Group, list[Rearranged]]:
    """The kernel as offered: its tensors by their new names, which join the graph; and what is stored otherwise."""
    scop = group.scop
    assert scop is not None
    if not offer.layouts:
        return group, []
    formats = dict(offer.formats)
    stored: list[Rearranged] = []

    def name(array: str, tensor: str) -> str:
        if array not in offer.layouts or (tensor not in formats and graph.tensors[tensor].const is None):
            return tensor
        if tensor in formats:
            what = image(graph, tensor, formats[tensor])
        else:
            what = stored_as(graph, tensor, scop.arrays[array], offer.layouts[array])
        stored.append(what)
        return what.name

    inputs = tuple(name(a, t) for a, t in zip(scop.args, group.inputs, strict=True))
    outputs = tuple(name(a, t) for a, t in zip(scop.results, group.outputs, strict=True))
    text, key = text_of(offer.scop)
    return replace(group, inputs=inputs, outputs=outputs, scop=offer.scop, text=text, key=key), stored


def image(graph: Graph, tensor: str, f: Format) -> Rearranged:
    """The tensor in its format."""
    shape = tuple(int(n) for n in graph.tensors[tensor].shape or () if isinstance(n, int))
    return Rearranged(tensor, tensor, shape, f.layout(len(shape)))
