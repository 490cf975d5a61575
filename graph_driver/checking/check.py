"""Comparing a model's outputs with an independent reference, and inputs to do it with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.graph.wording import one_line
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import ModelError
from polyc.poly.records import dataclass

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Difference:
    """The largest absolute error of one output and the output's scale (its largest magnitude).

    `constant`: all elements of the reference are one number, so that the comparison says little.
    """

    name: str
    error: float
    scale: float
    constant: bool = False

    @property
    def relative(self) -> float:
        """Error relative to the scale."""
        if self.error == 0.0:
            return 0.0
        return self.error / self.scale if self.scale > 0 else float("inf")


def random_input(name: str, dtype: str, shape: tuple[int, ...], seed: int, limit: int | None = None) -> np.ndarray:
    """Normal floats, integers from 0 to below `limit` (default 4), fair bools; the same for the same seed and name."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    kind = BY_NAME[dtype]
    if kind.is_float:
        return rng.standard_normal(shape).astype(kind.np)
    if kind.is_int:
        return rng.integers(0, min(limit or 4, np.iinfo(kind.np).max), shape).astype(kind.np)
    return rng.integers(0, 2, shape).astype(kind.np)


def reference_outputs(source: Path, inputs: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], str]:
    """What ONNX Runtime (if installed and able) or else onnx's reference computes, and who did.

    Raises:
        ModelError: neither can run the model.
    """
    from importlib.metadata import version
    from importlib.util import find_spec

    refused = ""
    if find_spec("onnxruntime") is not None:
        from polyc.graph_driver.checking.unsigned_weights import has_codes, without_signed_weights

        try:
            model = without_signed_weights(source) or source
            made = onnxruntime_outputs(model, inputs, optimise=not has_codes(source))
            return made, f"onnxruntime {version('onnxruntime')}"
        except Exception as error:  # it raises its own hierarchy of pybind exceptions
            refused = f"; onnxruntime: {one_line(error)}"
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(onnx.load(source))
            results = evaluator.run(None, dict(inputs))
        return dict(zip(evaluator.output_names, results, strict=True)), f"onnx.reference {version('onnx')}"
    except Exception as error:  # an operator of the reference may raise anything
        raise ModelError(f"no reference can run the model ({one_line(error)}{refused})") from error


def onnxruntime_outputs(
    source: Path | bytes, inputs: Mapping[str, np.ndarray], optimise: bool = True
) -> dict[str, Any]:
    """What ONNX Runtime computes on the CPU for a file or a serialised model; as it stands without `optimise`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = source if isinstance(source, bytes) else str(source)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Difference]:
    """One `Difference` per output; NaN must meet NaN and infinities their like.

    Raises:
        ModelError: an output's shape or dtype differs.
    """
    return [_difference(name, np.asarray(ours[name]), np.asarray(expected)) for name, expected in theirs.items()]


def _difference(name: str, a: np.ndarray, b: np.ndarray) -> Difference:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ModelError(f"output '{name}' is {a.dtype}{list(a.shape)}, the reference has {b.dtype}{list(b.shape)}")
    if a.dtype.kind in "OSU":
        return Difference(name, 0.0 if np.array_equal(a, b) else float("inf"), 1.0)
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    if not np.all(np.isfinite(x[~same])) or not np.all(np.isfinite(y[~same])):
        return Difference(name, float("inf"), 1.0)
    finite = np.abs(y[np.isfinite(y)])
    error = float(np.abs(x - y)[~same].max()) if not same.all() else 0.0
    constant = y.size > 1 and bool(np.all(y == y.reshape(-1)[0]))
    return Difference(name, error, float(finite.max()) if finite.size else 0.0, constant)
