"""`polyc.incremental`: a model that keeps all that it computed, and computes again only what a change reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import optimise
from polyc.graph_driver.fusion.groups import form_groups, translate
from polyc.graph_driver.fusion.ordering import in_best_order
from polyc.graph_driver.graph.aliases import is_view
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.incremental.kernels import Parts, Piece
from polyc.graph_driver.incremental.regions import Region, hull, size, slices, together, under, whole
from polyc.graph_driver.incremental.streams import Shift, shift_of
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.operators.fixed_order import in_fixed_order
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.slices.elements import elements_of, name_of
from polyc.poly.collection import seldom_collected
from polyc.poly.errors import ArgumentError, ModelError
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    import onnx

    from polyc.emit.kernel import Kernel
    from polyc.graph_driver.fusion.joined import Group


@dataclass(frozen=True)
class Change:
    """What an update did: `instances` of statements ran, of `of` in the whole model, in `kernels` kernels.

    `regions`: of each tensor that was computed again the box of its elements. `moved`: of each tensor that moved along
    with an input by how many elements in each dimension: `new[j] = old[j + moved]` outside of its region."""

    instances: int
    of: int
    kernels: int
    regions: Mapping[str, Region]
    moved: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of the model's instances that ran."""
        return self.instances / self.of if self.of else 0.0


@dataclass(frozen=True)
class _New:
    """Elements of an input that an update writes, the box around them, and how far they have moved, if that is it."""

    name: str
    where: tuple[int | slice, ...]
    values: np.ndarray
    region: Region
    shift: Shift | None = None


@dataclass(frozen=True)
class _Ran:
    """What a kernel did: instances, the boxes that it made; the results that moved."""

    instances: int
    regions: Mapping[str, Region]
    moved: Mapping[str, Shift]


class Incremental:
    """A model with its state: the values of all tensors between its kernels.

    `outputs` has the results for the inputs as they are now. They are read-only views of the state, which the next
    update changes. One thread at a time.
    """

    def __init__(self, graph: Graph, parts: Sequence[Parts]) -> None:
        self.graph, self.parts = graph, parts
        self._views = [n for n in graph.nodes if is_view(n)]
        self._state: dict[str, np.ndarray] = {}
        self._total = sum(p.instances for p in parts)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Compute everything, from these arrays (which are copied). The outputs by name.

        Raises:
            ArgumentError: an input is missing, or its dtype or shape does not fit.
        """
        given = {n: self._checked(n, inputs[n], self.graph.tensors[n].shape or ()) for n in self._inputs(inputs)}
        self._state = {n: t.const for n, t in self.graph.tensors.items() if t.const is not None}
        self._state |= {n: np.array(x, order="C") for n, x in given.items()}
        with self._whole_or_nothing():
            self._show()
            for p in self.parts:
                self._whole(p)
        return self.outputs

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        """The results for the inputs as they are now, by name. Raises `ArgumentError`: there was no `run`."""
        if not self._state:
            raise ArgumentError("run the model once before its state is asked for")
        found = {n: self._state[n].view() for n in self.graph.outputs}
        for x in found.values():
            x.flags.writeable = False
        return found

    def update(self, changes: Mapping[str, Any]) -> Change:
        """Put new elements into inputs, and compute again exactly what depends on them.

        Args:
            changes: arrays by `NAME[SUBSCRIPTS]` (NumPy's numbers and slices, `x[0, :, 32:64, 32:64]`), each of the
                shape that the subscripts select or one that broadcasts to it; by `NAME` a whole array, of which the
                elements that differ from those before count.

        Raises:
            ArgumentError: there was no `run`, there is no such input or element, or an array does not fit; nothing has
                changed then. After any other error the model has to `run` again.
        """
        if not self._state:
            raise ArgumentError("run the model once before it is updated")
        news = [new for text, value in changes.items() if (new := self._new(text, value)) is not None]
        changed: dict[str, Region] = {}
        moved: dict[str, Shift] = {}
        for new in news:
            self._state[new.name][new.where] = new.values
            if new.name in changed:
                moved.pop(new.name, None)
            elif new.shift is not None:
                moved[new.name] = new.shift
            changed[new.name] = together(changed.get(new.name), new.region)
        with self._whole_or_nothing():
            return self._after(changed, moved)

    def _after(self, changed: dict[str, Region], moved: dict[str, Shift]) -> Change:
        """Run what these regions of inputs reach; those of all other tensors, and how they move, are added to them."""
        made: dict[str, Region] = {}
        instances = kernels = 0
        self._through_views(changed, moved)
        for p in self.parts:
            ran = self._run(p, changed, moved)
            if ran is None:
                continue
            instances, kernels = instances + ran.instances, kernels + 1
            made |= ran.regions
            for name, region in ran.regions.items():
                changed[name] = whole(self.graph.tensors[name].shape or ()) if name in ran.moved else region
            moved |= ran.moved
            self._through_views(changed, moved)
        return Change(instances, self._total, kernels, made, {n: s.by for n, s in moved.items()})

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """A run that does not come to its end leaves no state, part of which would be that of other inputs."""
        try:
            yield
        except BaseException:
            self._state = {}
            raise

    # ---- inputs ----

    def _inputs(self, given: Mapping[str, Any]) -> Iterator[str]:
        for name in given:
            if name not in self.graph.inputs:
                raise ArgumentError(f"the model has no input '{name}' (inputs: {', '.join(self.graph.inputs)})")
        for name in self.graph.inputs:
            if name not in given:
                raise ArgumentError(f"input '{name}' is missing")
            yield name

    def _checked(self, name: str, value: Any, shape: Sequence[int]) -> np.ndarray:
        dtype = self.graph.tensors[name].dtype
        found = np.asarray(value)
        if dtype is None or found.dtype != dtype.np:
            raise ArgumentError(f"input '{name}' is {dtype}, not {found.dtype}")
        if found.shape != tuple(shape):
            raise ArgumentError(f"input '{name}' has shape {list(shape)}, not {list(found.shape)}")
        return found

    def _new(self, text: str, value: Any) -> _New | None:
        """What an entry of a change puts where; None where nothing is new."""
        name = text.strip() if text.strip() in self.graph.inputs else name_of(text)
        if name not in self.graph.inputs:
            raise ArgumentError(f"the model has no input '{name}' (inputs: {', '.join(self.graph.inputs)})")
        target = self._state[name]
        if text.strip() == name:
            given = self._checked(name, value, target.shape)
            region = _box_of(_differs(target, given))
            if region is None:
                return None
            shift = shift_of(_bits(target), _bits(given)) if given.dtype.itemsize <= 8 else None
            if shift is not None and sum(map(size, shift.fresh)) >= size(region):
                shift = None
            return _New(name, slices(region), given[slices(region)], region, shift)
        chosen = elements_of(text, name, target.shape)
        inside = text[text.index("[") + 1 : text.rindex("]")]
        where = tuple(_subscript(s) for s in inside.split(",")) if inside.strip() else ()
        new, shape = np.asarray(value), target[where].shape
        if new.dtype != target.dtype:
            raise ArgumentError(f"input '{name}' is {self.graph.tensors[name].dtype}, not {new.dtype}")
        try:
            values = np.broadcast_to(new, shape)
        except ValueError:
            raise ArgumentError(f"'{text}' selects {list(shape)}, not {list(new.shape)}") from None
        box = hull(chosen)
        return None if box is None else _New(name, where, values, box)

    # ---- kernels ----

    def _run(self, parts: Parts, changed: Mapping[str, Region], moved: Mapping[str, Shift]) -> _Ran | None:
        """Run what these regions reach of a kernel; None: nothing."""
        reached: dict[str, Region] = {}
        shifts: dict[str, Shift] = {}
        for array, tensor in zip(parts.scop.args, parts.group.inputs, strict=True):
            if tensor in changed:
                before, after = self.graph.tensors[tensor].shape or (), parts.shapes[array]
                reached[array] = together(reached.get(array), under(changed[tensor], before, after))
                shift = moved[tensor].under(before, after) if tensor in moved else None
                if shift is not None:
                    shifts[array] = shift
        found = parts.shifted(shifts, {a: r for a, r in reached.items() if a not in shifts}) if shifts else None
        if found is not None:
            return self._moved(parts, *found)
        piece = parts.after(reached) if reached else None
        return None if piece is None else _Ran(piece.instances, self._made(parts, piece), {})

    def _moved(self, parts: Parts, shifts: Mapping[str, Shift], pieces: Sequence[Piece]) -> _Ran:
        """Move results, and make what is new of them."""
        moved: dict[str, Shift] = {}
        for array, tensor in zip(parts.scop.results, parts.group.outputs, strict=True):
            shifts[array].move(self._state[tensor].reshape(parts.shapes[array]))
            shift = shifts[array].under(parts.shapes[array], self.graph.tensors[tensor].shape or ())
            if shift is not None and any(shift.by):
                moved[tensor] = shift
        made: dict[str, Region] = {}
        for piece in pieces:
            for name, region in self._made(parts, piece).items():
                made[name] = together(made.get(name), region)
        for tensor in parts.group.outputs:
            if tensor not in moved:
                made[tensor] = whole(self.graph.tensors[tensor].shape or ())
        return _Ran(sum(p.instances for p in pieces), made, moved)

    def _made(self, parts: Parts, piece: Piece) -> dict[str, Region]:
        """Run a piece: what it has made of each tensor."""
        made = {}
        for array, tensor, region, result in zip(
            parts.scop.results, parts.group.outputs, piece.makes, self._results(parts, piece), strict=True
        ):
            if size(region):
                self._state[tensor].reshape(parts.shapes[array])[slices(region)] = result
                made[tensor] = under(region, parts.shapes[array], self.graph.tensors[tensor].shape or ())
        return made

    def _whole(self, parts: Parts) -> None:
        """Run a kernel."""
        for tensor, result in zip(parts.group.outputs, self._results(parts, parts.everything()), strict=True):
            self._state[tensor] = np.asarray(result, order="C").reshape(self.graph.tensors[tensor].shape or ())
        self._show()

    def _results(self, parts: Parts, piece: Piece) -> tuple[np.ndarray, ...]:
        operands = []
        for array, tensor, region in zip(parts.scop.args, parts.group.inputs, piece.reads, strict=True):
            held = self._state[tensor].reshape(parts.shapes[array])
            operands.append(np.asarray(held[slices(region)], order="C"))  # of no dimension, too
        results = piece.kernel(*operands)
        return results if isinstance(results, tuple) else (results,)

    def _show(self) -> None:
        """Views of what there is by now."""
        for v in self._views:
            if v.inputs[0] in self._state:
                self._state[v.outputs[0]] = self._state[v.inputs[0]].reshape(self.graph.tensors[v.outputs[0]].shape)

    def _through_views(self, changed: dict[str, Region], moved: dict[str, Shift]) -> None:
        for v in self._views:
            source, sink = v.inputs[0], v.outputs[0]
            before, after = (self.graph.tensors[n].shape or () for n in (source, sink))
            if source in changed:
                changed[sink] = under(changed[source], before, after)
            shift = moved[source].under(before, after) if source in moved else None
            if shift is not None:
                moved[sink] = shift


def incremental(source: str | Path | onnx.ModelProto | bytes, **options: Any) -> Incremental:
    """A model whose inputs change in places: `run` it once, then `update` it.

    Every kernel is made in the fixed order of `compile_model(..., reproducible=True)`, and so are its parts: the bits
    are those of a whole run. Regions are boxes; where data decide what is read, all that may depend on a change is
    computed again.

    Args:
        source: as `compile_model`'s.
        options: as `compile_model`'s: `target` (a CPU), `threads`, `dims`, `shapes`, `fuse`, `bind`, `passes`,
            `disable`.

    Raises:
        ArgumentError: there is no such option.
        ModelError: the file is broken, sizes are missing, or a node has no loops (it is named).
        BuildError: code generation failed.
    """
    for name in options:
        if name not in ("target", "threads", "dims", "shapes", "fuse", "bind", "passes", "disable"):
            raise ArgumentError(f"incremental has no option '{name}'")
    asked = CompileOptions(**options)
    asked = replace(asked, symbolic=False, reproducible=True, layouts="as_given", disable=(*asked.disable, "parts"))
    platform = platform_of(asked.target, asked.threads)
    with seldom_collected():
        graph = import_with(source, platform, asked)
        optimise(graph, platform, asked)
        pieces = translate(graph, in_fixed_order(lookup))
        found = form_groups(graph, pieces, asked.fuse, platform.backend.fusing(platform.machine))
        groups = in_best_order(graph, found)
    for g in groups:
        _refuse(g)
    code: dict[str, Kernel] = {}
    return Incremental(graph, [Parts(g, platform, code) for g in groups])


def _refuse(group: Group) -> None:
    if group.scop is None:
        raise ModelError(f"{group.label} '{group.nodes[0].name}' has no loops, so no parts: {group.reason}")
    for a in group.scop.arrays.values():
        if a.kind == "inout":
            raise ModelError(f"{group.label} '{group.nodes[0].name}' updates {a.name} in place")


def _subscript(text: str) -> int | slice:
    pieces = [int(p) if p.strip() else None for p in text.split(":")]
    return int(text) if len(pieces) == 1 else slice(*pieces)


def _differs(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Where the bits differ (NaNs are equal to themselves, zeros of both signs are not)."""
    return np.asarray(_bits(old) != _bits(new)).reshape(old.shape)


def _bits(array: np.ndarray) -> np.ndarray:
    """As integers; elements of more than 8 bytes as several of them."""
    if array.dtype.kind not in "fcV":
        return array
    width = np.dtype(f"u{array.dtype.itemsize}") if array.dtype.itemsize <= 8 else np.dtype("u8")
    return np.ascontiguousarray(array).view(width)


def _box_of(other: np.ndarray) -> Region | None:
    """The smallest box around the elements that are true."""
    if not other.any():
        return None
    ends = []
    for d in range(other.ndim):
        at = np.flatnonzero(other.any(axis=tuple(k for k in range(other.ndim) if k != d)))
        ends.append((int(at[0]), int(at[-1]) + 1))
    return tuple(ends)
