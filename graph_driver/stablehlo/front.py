"""`polyc.from_stablehlo`, `polyc.from_jax`: models from StableHLO's text, and from functions of JAX by way of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.model import Model
from polyc.graph_driver.stablehlo.convert import to_onnx
from polyc.graph_driver.stablehlo.parser import parse
from polyc.poly.errors import ArgumentError, ModelError


def read_stablehlo(source: str | Path, entry: str = "main") -> onnx.ModelProto:
    """A StableHLO program as an ONNX model, which everything of polyc takes that takes a model.

    Operations that ONNX lacks are nodes `polyc::Loops`, which bring their loops.

    Args:
        source: a path, or the text of a module itself.
        entry: the function whose arguments are the inputs (by their names without `%`); its results are `result0`, ...

    Raises:
        ModelError: the file cannot be read, the text is no StableHLO, or an operation or element type is one that polyc
            has not; its line is named.
    """
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return to_onnx(parse(source), entry)
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from None
    return to_onnx(parse(text, str(source)), entry)


def from_stablehlo(source: str | Path, entry: str = "main", **options: Any) -> Model:
    """Compile a StableHLO program: what `jax.jit(f).lower(...).as_text()` gives, or TensorFlow's exporter.

    Args:
        source: a path, or the text of a module itself.
        entry: the function to compile; inputs are called as its arguments, results `result0`, `result1`, ...
        options: those of `polyc.compile_model`; types that contradict each other are refused (`strict_annotations`).

    Raises:
        ModelError: as `read_stablehlo`, or as `polyc.compile_model`.
    """
    return compile_model(read_stablehlo(source, entry), **{"strict_annotations": True, **options})


class JaxFunction:
    """A compiled function of JAX for the shapes and types of the arguments that it was lowered for. Call it as the
    function; results are NumPy's arrays in the function's own structure."""

    def __init__(self, model: Model, text: str, shapes: Sequence[Any], structure: Any, results: Any) -> None:
        self.model, self.text = model, text
        self._shapes, self._structure, self._results = shapes, structure, results

    def __call__(self, *args: Any) -> Any:
        """The function's result. Raises `ArgumentError`: other arguments than those that it was lowered for."""
        import jax

        flat, structure = jax.tree_util.tree_flatten(args)
        if structure != self._structure:
            raise ArgumentError("the function takes its arguments in the structure in which it was lowered")
        arrays = [np.asarray(a) for a in flat]
        for k, (array, (shape, dtype)) in enumerate(zip(arrays, self._shapes, strict=True)):
            if array.shape != shape or array.dtype != dtype:
                raise ArgumentError(f"argument {k} must be {dtype}{list(shape)}, not {array.dtype}{list(array.shape)}")
        made = self.model({f"arg{k}": a for k, a in enumerate(arrays)})
        return jax.tree_util.tree_unflatten(self._results, [made[f"result{k}"] for k in range(len(made))])


def from_jax(fn: Callable[..., Any], *args: Any, **options: Any) -> JaxFunction:
    """Compile a function of JAX for arguments of the shapes and types of `args`. Needs the package jax.

    Args:
        fn: what `jax.jit` takes.
        args: examples of its arguments, or `jax.ShapeDtypeStruct`s, in any structure of lists, tuples and dicts.
        options: those of `polyc.compile_model`.

    Raises:
        ModelError: jax is not installed, or the function has an operation that polyc has not.
    """
    try:
        import jax
    except ImportError:
        raise ModelError("polyc.from_jax needs the package jax, which is not installed") from None
    lowered = jax.jit(fn, keep_unused=True).lower(*args)
    text = lowered.as_text()
    flat, structure = jax.tree_util.tree_flatten(args)
    shapes = [_kind(jax, a) for a in flat]
    return JaxFunction(from_stablehlo(text, **options), text, shapes, structure, lowered.out_tree)


def _kind(jax: Any, value: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type that JAX gives an argument (a Python number, or f64 without x64, gets a narrower one)."""
    found = value if hasattr(value, "dtype") and hasattr(value, "shape") else np.asarray(value)
    return tuple(found.shape), np.dtype(jax.dtypes.canonicalize_dtype(found.dtype))
