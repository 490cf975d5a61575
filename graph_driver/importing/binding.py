"""Concrete input shapes: symbolic sizes of a model bound from `dims`, shapes, or defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx

from polyc.graph_driver.graph.size import Extent, Size
from polyc.graph_driver.graph.symbols import Range, Symbols
from polyc.poly.errors import ModelError

Dim = int | tuple[int, int | None]
ANONYMOUS = ("", "?", "-1", "None", "unk", "unknown")


def symbol_of(input_name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """A size, or the name it is bound by: the model's own or `INPUT.AXIS`."""
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    if dim.HasField("dim_param") and dim.dim_param not in ANONYMOUS:
        return str(dim.dim_param)
    return f"{input_name}.{axis}"


def names_of(info: onnx.ValueInfoProto) -> list[int | str]:
    """The sizes that a model gives an input or an output, with the names of those that are none; nothing for what is no
    tensor, or of no known rank."""
    return [symbol_of(info.name, axis, d) for axis, d in enumerate(info.type.tensor_type.shape.dim)]


SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
TYPICAL_BATCH = 4
TYPICAL = (128, 96, 160, 192, 224, 256)
"""Representative values of further sizes, in order: different ones, so that formulas of one symbol and of
another are told apart, and multiples of 32, as the strides of networks want them."""


class SizesMissing(ModelError):
    """Sizes must be numbers, and nothing says which."""

    code = "P402"


class Binder:
    """Collects bindings over all inputs; `notes` tells what was found of them.

    A value of `dims` is a number, or a range `(low, high)` (`high` None: no end) of a size that
    stays symbolic; `symbols` then has it. With `keep` every size that nothing binds stays symbolic, too.
    The representative values are divided by `scale`.
    """

    def __init__(
        self, dims: Mapping[str, Dim], shapes: Mapping[str, Sequence[int]], keep: bool = False, scale: int = 1
    ) -> None:
        self.scale = scale
        self.dims, self.asked = dims, keep
        self.known: Mapping[str, Range] = {}
        self.reasons: Mapping[str, str] = {}
        self.same: Mapping[str, str] = {}
        self.further = 0  # symbols beside leading sizes
        self.sizes: dict[str, Extent] = {}
        self.keep: dict[str, tuple[int, int | None]] = {}
        self.keep_all = keep
        self.symbols = Symbols()
        for name, value in dims.items():
            if isinstance(value, tuple):
                self.keep[name] = _range(name, value)
            elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ModelError(f"size {name}={value!r} is not a number of elements")
            else:
                self.sizes[name] = value
        self.shapes = shapes
        self.used: set[str] = set()
        self.notes: list[str] = []

    def again(
        self,
        known: Mapping[str, Range],
        reasons: Mapping[str, str] | None = None,
        same: Mapping[str, str] | None = None,
    ) -> Binder:
        """A new binder of the same arguments, for another import; its symbols start with what is known of them.

        `same`: keys of sizes that are others (each of which comes before it).
        """
        made = Binder(self.dims, self.shapes, self.asked, self.scale)
        made.known, made.reasons, made.same = known, reasons or {}, same or {}
        return made

    def bind(self, inputs: Mapping[str, list[int | str] | None]) -> dict[str, tuple[Extent, ...]]:
        """The shape of each input (None = the model states no rank).

        Raises:
            SizesMissing: sizes are missing (all are listed), or the rank of an input.
            ModelError: a given shape contradicts the model, or `dims` / `shapes` name something that it does not have.
        """
        for name in self.shapes:
            if name not in inputs:
                raise ModelError(f"the model has no input '{name}'; it has {', '.join(sorted(inputs)) or 'none'}")
        for name, symbols in inputs.items():
            if name in self.shapes:
                self._unify(name, symbols, tuple(int(s) for s in self.shapes[name]))
        result, missing = self._shapes(inputs)
        unknown = sorted((set(self.sizes) | set(self.keep)) - self.used)
        if unknown:
            known = sorted({s for d in inputs.values() for s in d or () if isinstance(s, str)})
            raise ModelError(f"the model has no size named '{unknown[0]}'; it has {', '.join(known) or 'none'}")
        if missing:
            listed = ", ".join(dict.fromkeys(missing))
            raise SizesMissing(f"sizes not given: {listed} (pass --dim NAME=V, dims={{...}}, or an input array)")
        return result

    def _shapes(self, inputs: Mapping[str, list[int | str] | None]) -> tuple[dict[str, tuple[Extent, ...]], list[str]]:
        """The shapes, and the sizes that are missing."""
        missing: list[str] = []
        result: dict[str, tuple[Extent, ...]] = {}
        for name, symbols in inputs.items():
            if symbols is None:
                if name not in self.shapes:
                    raise SizesMissing(f"input '{name}' has no shape in the model; give an input array")
                result[name] = tuple(self.shapes[name])
            else:
                result[name] = tuple(self._size(name, axis, s, missing) for axis, s in enumerate(symbols))
        return result, missing

    def _unify(self, name: str, symbols: list[int | str] | None, shape: tuple[int, ...]) -> None:
        if symbols is None:
            return
        if len(symbols) != len(shape):
            raise ModelError(f"input '{name}' has rank {len(shape)}, the model wants {len(symbols)}")
        for axis, (symbol, size) in enumerate(zip(symbols, shape, strict=True)):
            want = self.sizes.get(symbol) if isinstance(symbol, str) else symbol
            if want is not None and want != size:
                raise ModelError(f"input '{name}' has size {size} on axis {axis}, the model wants {want}")
            if isinstance(symbol, str) and symbol not in self.keep and f"{name}.{axis}" not in self.keep:
                self.sizes[symbol] = size

    def _size(self, name: str, axis: int, symbol: int | str, missing: list[str]) -> Extent:
        by_axis = f"{name}.{axis}"
        if isinstance(symbol, int):
            return symbol
        for key in (symbol, by_axis):
            if key in self.sizes:
                self.used.add(key)
                return self.sizes[key]
        kept = next((key for key in (symbol, by_axis) if key in self.keep), symbol if self.keep_all else None)
        if kept is not None:
            self.used.add(kept)
            self.sizes[kept] = made = self._kept(kept, axis)
            return made
        missing.append(symbol)
        return 0

    def _kept(self, key: str, axis: int) -> Extent:
        """A size that stays symbolic, unless an import before has found it to be a number or another size."""
        if (first := self.same.get(key)) is not None:
            return self.sizes[first]
        known = self.known.get(_name(key))
        if known is not None and known.asked[0] == known.asked[1]:
            why = self.reasons.get(_name(key), "asked for")
            self.notes.append(f"size {key} can only be {known.asked[0]} ({why})")
            return known.asked[0]
        return self._symbol(key, axis)

    def _symbol(self, key: str, axis: int) -> Size:
        """A new symbolic size."""
        low, high = self.keep.get(key, (1, None))
        name = _name(key)
        typical = TYPICAL_BATCH
        if axis > 0:
            typical = TYPICAL[min(self.further, len(TYPICAL) - 1)] // self.scale
            self.further += 1
        if (known := self.known.get(name)) is not None:
            (low, high), typical = known.asked, known.typical
            if name in self.reasons:
                self.symbols.reasons[name] = self.reasons[name]
        typical = max(low, 1, typical if high is None else min(typical, high))
        return self.symbols.new(name, low, high, typical, key)


def _name(key: str) -> str:
    """The symbol of a size that the model calls `key`."""
    return key if SYMBOL.fullmatch(key) else "n" + re.sub(r"[^A-Za-z0-9_]+", "_", key)


def _range(name: str, value: tuple[int, int | None]) -> tuple[int, int | None]:
    low, high = value
    if low < 0 or (high is not None and high < max(low, 1)):
        raise ModelError(f"size {name}: the range {low}..{'' if high is None else high} has no sizes from 1 on")
    return low, high
