"""Models compiled for the sizes of one call, where the model for all sizes cannot run it."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from polyc.graph_driver.graph.progress import progress_bar
from polyc.poly.errors import ArgumentError, ModelError
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from polyc.graph_driver.graph.report import Report
    from polyc.graph_driver.importing.declared import Declared
    from polyc.graph_driver.importing.source import Source
    from polyc.graph_driver.options import CompileOptions
    from polyc.graph_driver.planning.plan import Plan

Shape = tuple[int, ...]
Shapes = tuple[Shape, ...]


class Planned(Protocol):
    """What is known here of a model."""

    @property
    def plan(self) -> Plan:
        """Its memory."""


M = TypeVar("M", bound=Planned)
Origin = tuple["Path | bytes | onnx.ModelProto", "CompileOptions"]
KEPT = 8
"""How many models compiled for fixed sizes are kept; the one used longest ago goes first."""
KEPT_BYTES = 4 << 30
"""Of weights and arenas, of all that are kept; the last one used stays."""


@dataclass(frozen=True)
class Specialisation(Generic[M]):
    """A model that was compiled for the `shapes` (by input) of a call, in how many `seconds`, and `why`."""

    shapes: Mapping[str, Shape]
    seconds: float
    why: str
    model: M

    def __str__(self) -> str:
        return f"specialised to {shapes_text(self.shapes)} in {self.seconds:.2f} s: {self.why}"


def shapes_text(shapes: Mapping[str, Shape]) -> str:
    """`x[1, 3], h[2]`."""
    return ", ".join(f"{n}{list(s)}" for n, s in shapes.items())


class Specialiser(Generic[M]):
    """Compiles a model for fixed shapes when they are first asked for, and keeps the last `KEPT`.

    Any number of threads may ask: one compiles, those that want the same shapes wait for it, all others run on.
    `at_calls`: calls may ask, not only `Model.specialise`.
    """

    def __init__(
        self, source: Source, options: CompileOptions, report: Report,
        compiling: Callable[[Path | bytes | onnx.ModelProto, CompileOptions], M], said: Declared | None = None,
    ) -> None:  # fmt: skip
        self.source, self.options, self._report = source, options, report
        self.at_calls = not options.strict_shapes and options.symbolic is not True
        self.compiling = compiling
        self._said = said
        self._kept: OrderedDict[Shapes, Specialisation[M]] = OrderedDict()
        self._lock = threading.Lock()  # held while compiling: threads that want the same shapes wait for them
        self._changing = threading.Lock()  # of what is kept

    def origin(self) -> Origin:
        """What is compiled, and how: enough to do so elsewhere. Raises `ModelError`: the file has changed."""
        return self.source.again(), replace(self.options, progress=None)

    @cached_property
    def said(self) -> Declared:
        """What the file says of its inputs."""
        return self._said or self.source.declared(self.options.bind)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def all(self) -> tuple[Specialisation[M], ...]:
        """Those that are kept, the one used last at the end."""
        with self._changing:
            return tuple(self._kept.values())

    def kept(self, key: Shapes) -> M | None:
        """The model for these shapes (in the order of `said`), if there is one."""
        if key not in self._kept:
            return None
        with self._changing:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
        return None if found is None else found.model

    def allows(self, key: Shapes) -> bool:
        """Whether the file, and what was asked for when it was compiled, leave room for these shapes."""
        return self.said.allows(self._named(key), self.options.dims, self.options.shapes)

    def get(self, key: Shapes, why: str) -> M:
        """The model for these shapes, compiled now if need be.

        Raises:
            ArgumentError: the model cannot be computed at these shapes.
            ModelError: the file is no longer the one that was compiled.
        """
        with self._lock:
            if (found := self.kept(key)) is not None:
                return found
            shapes = self._named(key)
            source, start = self.source.again(), time.perf_counter()
            try:
                model = self._compiled(source, shapes)
            except ModelError as error:
                raise ArgumentError(f"the model does not run at {shapes_text(shapes)}: {error} ({why})") from error
            made = Specialisation(shapes, time.perf_counter() - start, why, model)
            self._keep(key, made)
            self._report.specialised.append(str(made))
            return model

    def _keep(self, key: Shapes, made: Specialisation[M]) -> None:
        with self._changing:
            self._kept[key] = made
            while len(self._kept) > KEPT or (len(self._kept) > 1 and self._bytes() > KEPT_BYTES):
                self._kept.popitem(last=False)

    def _bytes(self) -> int:
        return sum(s.model.plan.weight_bytes + s.model.plan.peak for s in self._kept.values())

    def _compiled(self, source: Path | bytes | onnx.ModelProto, shapes: Mapping[str, Shape]) -> M:
        dims, ranks = self.said.bindings(shapes, self.options.dims)
        options = replace(self.options, dims=dims, shapes=ranks, symbolic=False, strict_shapes=True)
        if options.progress is not None:
            return self.compiling(source, options)
        with progress_bar(title=f"{self.said.name} at {shapes_text(shapes)}") as progress:
            return self.compiling(source, replace(options, progress=progress))

    def _named(self, key: Shapes) -> dict[str, Shape]:
        return {n: s for n, s in zip(self.said.shapes, key, strict=True) if n in self.said.tensors}
