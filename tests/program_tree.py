"""Operators as trees of lines of DSL source, with their arrays and inputs; plain Python is their oracle.

A program that fails is shrunk by deleting nodes of its tree. `random_programs.py` and `random_reductions.py` draw them.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import polyc
from polyc.poly.dtypes import BY_NAME, DType

NAMES = (
    "abs atan bool_ cos dims empty erf exp expm1 f16 f32 f64 floor fma full grid i16 i32 i64 i8 inout max min round "
    "sigmoid sin sqrt tanh u32 u8 where zeros"
)
HEADER = f"from polyc import {', '.join(NAMES.split())}\n"
SIZES = ("N", "M", "K")


@dataclass(frozen=True)
class Extent:
    """`dim + pad` (or the number `pad`)."""

    dim: str | None
    pad: int

    def __str__(self) -> str:
        if self.dim is None:
            return str(self.pad)
        return self.dim if not self.pad else f"{self.dim} + {self.pad}"

    def value(self, sizes: dict[str, int]) -> int:
        return self.pad + (sizes[self.dim] if self.dim else 0)


@dataclass(frozen=True)
class Iterator_:
    """A loop variable with `lo <= value <= dim - 1 + up` (or `<= up` without dim); `counted` by a `while`."""

    name: str
    lo: int
    dim: str | None
    up: int
    counted: bool = False


@dataclass(frozen=True)
class Arr:
    """An array in scope. `kind`: in, inout, out, local; `values` bounds those of an index array."""

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    kind: str
    values: str | None = None

    @property
    def is_float(self) -> bool:
        return BY_NAME[self.dtype].is_float


@dataclass
class Line:
    """One line of source and what is indented below it."""

    text: str
    body: list[Line] = field(default_factory=list)

    def render(self, indent: int) -> Iterator[str]:
        yield "    " * indent + self.text
        for line in self.body:
            yield from line.render(indent + 1)
        if self.text.endswith(":") and not self.body:
            yield "    " * (indent + 1) + "pass"


@dataclass(frozen=True)
class Program:
    """A generated operator. `integral`: all its float arithmetic is on small integers, so that
    reductions may be reordered without any rounding; `inexact`: it calls exp, sin, ..."""

    seed: int
    head: str
    body: list[Line]
    tail: str
    sizes: dict[str, int]
    arrays: tuple[Arr, ...]
    scalars: tuple[tuple[str, str], ...]
    integral: bool
    inexact: bool

    @property
    def source(self) -> str:
        dims = f'{", ".join(SIZES)} = dims("{" ".join(SIZES)}")\n'
        lines = [line for part in self.body for line in part.render(1)]
        if self.tail:
            lines.append("    " + self.tail)
        return HEADER + dims + "\n\n" + self.head + "\n" + "\n".join(lines or ["    pass"]) + "\n"

    def operator(self, reassociate: bool = False) -> Any:
        """The `Operator`, from source that `inspect` can find."""
        name = f"<random program {self.seed} {hash(self.source)}>"
        text = self.source
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        scope: dict[str, Any] = {}
        exec(compile(text, name, "exec"), scope)
        return polyc.op(reassociate=reassociate)(scope["kernel"])

    def arguments(self) -> list[Any]:
        """Seeded inputs, in call order."""
        rng = np.random.default_rng(self.seed)
        args: list[Any] = []
        for a in self.arrays:
            if a.kind in ("in", "inout"):
                args.append(self._data(a, rng))
        args += [self._scalar(name, BY_NAME[dtype], rng) for name, dtype in self.scalars]
        return args

    def _scalar(self, name: str, dtype: DType, rng: np.random.Generator) -> Any:
        if name[1:] in SIZES:  # the end of loops
            return dtype.np.type(rng.integers(0, self.sizes[name[1:]] + 1))
        if name == "alpha":
            return dtype.np.type(rng.integers(1, 4))
        if dtype.is_float and not self.integral:
            return dtype.np.type(rng.uniform(-2, 2))
        return dtype.np.type(rng.integers(0 if dtype.kind == "uint" else -9, 10))

    def _data(self, a: Arr, rng: np.random.Generator) -> np.ndarray:
        dtype: DType = BY_NAME[a.dtype]
        shape = tuple(e.value(self.sizes) for e in a.shape)
        if a.values is not None:
            top = self.sizes[a.values]
            if a.name.startswith("ptr"):
                return np.sort(rng.integers(0, top + 1, shape)).astype(dtype.np)
            if a.name.startswith("cnt"):
                return rng.integers(0, top + 1, shape).astype(dtype.np)
            return rng.integers(0, top, shape).astype(dtype.np)
        if dtype.kind == "bool":
            return rng.random(shape) < 0.5
        if not dtype.is_float:
            return rng.integers(0 if dtype.kind == "uint" else -9, 10, shape).astype(dtype.np)
        if self.integral:
            return rng.integers(-4, 5, shape).astype(dtype.np)
        return rng.uniform(-2, 2, shape).astype(dtype.np)

    def without(self, path: tuple[int, ...]) -> Program:
        """The program without one node of its body."""
        return replace(self, body=_without(self.body, path))

    def unwrapped(self, path: tuple[int, ...]) -> Program:
        """The program with a node replaced by its children (an `if` taken away)."""
        return replace(self, body=_without(self.body, path, keep=True))

    def paths(self) -> list[tuple[int, ...]]:
        """All nodes, outermost first."""

        def walk(lines: list[Line], at: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            for k, line in enumerate(lines):
                yield (*at, k)
                yield from walk(line.body, (*at, k))

        return sorted(walk(self.body, ()), key=len)


def _without(lines: list[Line], path: tuple[int, ...], keep: bool = False) -> list[Line]:
    k, *rest = path
    if rest:
        changed = Line(lines[k].text, _without(lines[k].body, tuple(rest), keep))
        return [*lines[:k], changed, *lines[k + 1 :]]
    return [*lines[:k], *(lines[k].body if keep else []), *lines[k + 1 :]]
