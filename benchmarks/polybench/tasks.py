"""What each contender is told: how PolyBench's C takes the arguments of polyc's operator, and gives its results."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from benchmarks.polybench.contender import Task
from benchmarks.polybench.sources import Folders, Parameter, Peer, build, parameters, source_of
from benchmarks.polybench.subjects import INTEGERS, Subject
from polyc.poly.records import dataclass

IN_NUMPY = {"DOUBLE": "float64", "FLOAT": "float32", "INT": "int32"}


@dataclass(frozen=True)
class Case:
    """A subject, and how it was made: `seed` of its inputs."""

    given: Subject
    size: str
    single: bool
    seed: int

    def of_polyc(self, threads: int, symbolic: bool = False) -> Task:
        """polyc's kernel."""
        return Task(self.given.name, self.size, self.single, self.seed, threads, symbolic, None, (), ())

    def of_c(self, peer: Peer, folders: Folders, in_double: bool = False) -> Task:
        """The kernel of a peer; `in_double`: on the same inputs in f64. Raises as `build` does."""
        name = self.given.name
        data = "INT" if name in INTEGERS else "FLOAT" if self.single and not in_double else "DOUBLE"
        library: Path = build(peer, folders, name, self.given.sizes, data)
        text = source_of(folders.source, name).read_text(encoding="utf-8")
        taken = [p for p in parameters(text) if p.kind != "size"]
        places = {self._argument(p): k for k, p in enumerate(taken)}
        results = [*self.given.updated, *self.given.operator.scop(**self.given.known()).results]
        arguments = tuple((self._value(p), "int8" if p.type == "base" else IN_NUMPY[data]) for p in taken)
        return Task(name, self.size, self.single, self.seed, peer.threads, False, str(library), arguments,
                    tuple(places[r] for r in results))  # fmt: skip

    def _argument(self, p: Parameter) -> str:
        """The operator's name for a parameter: `y_1` is `y1`, `_fict_` is `fict`."""
        plain = p.name.replace("_", "")
        return plain if plain in self.given.values else p.name

    def _value(self, p: Parameter) -> Any:
        name, sizes = self._argument(p), self.given.sizes
        if name in self.given.values:
            return name
        if p.kind == "array":  # a result or what the kernel keeps for itself
            return (0, *(sizes[n] for n in p.extents))
        known = inspect.signature(self.given.operator.fn).parameters
        return (known[name].default,) if name in known else (sizes[name.removeprefix("float_").upper()],)
