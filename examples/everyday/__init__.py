"""Some 160 programs as people write them who have read a page about the language: no names, sizes or spellings that the
compiler's authors had in mind. `python -m benchmarks.everyday` times them beside gcc.

Each module has its programs, `SIZES` (to be timed with, to be compared with plain Python) and `values`, which gives the
inputs that may not be any numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

MODULES = ("first_programs", "recurrences", "formulas", "narrow_types", "spellings", "numerics")


@dataclass(frozen=True)
class Program:
    """A program with its sizes; `large` to be timed with, `small` for plain Python."""

    name: str
    operator: Any
    large: Mapping[str, int]
    small: Mapping[str, int]
    module: Any

    def named(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """The sizes that a call has to give."""
        return sizes if self.name in getattr(self.module, "NAMED", ()) else {}

    def arguments(self, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Any]:
        """Random inputs by name, as the program takes them."""
        scop = self.operator.scop(**sizes)
        made = {}
        for name in scop.args:
            array = scop.arrays[name]
            shape = tuple(int(e.value) for e in array.shape)
            made[name] = self._value(name, np.dtype(array.dtype.np), shape, sizes, rng)
        return made

    def _value(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], sizes: Mapping[str, int],
        rng: np.random.Generator,
    ) -> Any:  # fmt: skip
        special = self.module.values(self.name, name, dtype, shape, sizes, rng)
        if special is not None:
            return special
        if dtype.kind in "iu":
            return rng.integers(0, 256 if dtype == np.uint8 else 4, shape).astype(dtype)
        numbers = np.asarray(rng.random(shape)).astype(dtype)
        return numbers if shape else numbers[()]


def programs() -> Iterator[Program]:
    """All of them."""
    for name in MODULES:
        module = import_module(f"examples.everyday.{name}")
        for program, (large, small) in module.SIZES.items():
            yield Program(program, getattr(module, program), large, small, module)
