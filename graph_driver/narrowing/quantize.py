"""`polyc quantize`: a model with codes of 8 or 4 bits where the stated error allows, and what that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.narrowing.calibrate import METHODS, Observed, samples
from polyc.graph_driver.narrowing.measures import relative_error, root, same_answers
from polyc.graph_driver.narrowing.prepare import Layer, constants, layers, prepared
from polyc.graph_driver.narrowing.rewrite import Rewriting, fits_four_bits
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

WAYS = ("static", "dynamic")
Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Quantised:
    """A narrow model, and what it costs.

    `errors`: of each output, the root of the mean squared difference relative to that of its values. `agreement`: of
    each output with classes along its last axis, the share of rows whose largest element is the same. `layers`: the
    error of each narrow layer alone, largest first; `kept` are the names of those that stay f32.
    """

    model: onnx.ModelProto
    errors: Mapping[str, float]
    agreement: Mapping[str, float]
    layers: Sequence[tuple[str, float]]
    kept: Sequence[str]
    samples: int
    bytes_before: int
    bytes_after: int


def quantize(
    path: Path | str, data: Values, way: str = "static", weights: int = 8, calibration: str = "minmax",
    max_error: float | None = None, keep_f32: Sequence[str] = (), threads: int | None = None,
) -> Quantised:  # fmt: skip
    """Bring a model's convolutions and products to codes.

    Args:
        path: an ONNX file with f32 weights.
        data: for each input an array of samples, along the first axis.
        way: `static` (ranges from the data; QuantizeLinear and DequantizeLinear around the layers) or `dynamic` (ranges
            of each run; integer products).
        weights: 8 bits, a step for each channel; or 4, in blocks of 32, of matrix products only.
        calibration: of `static`, one of `METHODS`.
        max_error: layers, the worst first, stay f32 until no output's error is larger.
        keep_f32: layers (names of nodes) or operators that stay f32.
        threads: of the runs that this takes.

    Raises:
        ArgumentError: an argument makes no sense, data do not fit, or the error is not reached with all layers f32.
        ModelError: the file is no model that can be quantised.
    """
    _check(way, weights, calibration, max_error)
    model = prepared(path)
    names = inputs_of(model)
    runs = [*samples(data, [*names], names)]
    every = layers(model)
    check_kept(every, keep_f32)
    found = [n for n in every if n.name not in keep_f32 and n.operator not in keep_f32]
    if weights == 4:
        found = [n for n in found if fits_four_bits(n, model, constants(model.graph))]
    if not found:
        raise ArgumentError(f"{path}: there is no layer with constant weights that may have {weights} bits")
    plain = compile_model(model, threads=threads)
    wanted = [plain(feeds) for feeds in runs]
    static = weights == 8 and way == "static"
    observed = _observe(model, found, runs, threads, calibration) if static else Observed()
    maker = _Maker(model, observed, way, weights, calibration)
    ranked = _local_errors(model, maker, found, runs, threads)
    kept: list[Layer] = []
    while True:
        narrow = maker.of([n for n in found if n not in kept])
        got = compile_model(narrow, threads=threads)
        made = [got(feeds) for feeds in runs]
        errors = {name: relative_error([w[name] for w in wanted], [m[name] for m in made]) for name in wanted[0]}
        if max_error is None or max(errors.values(), default=0.0) <= max_error:
            break
        if len(kept) == len(found):
            raise ArgumentError(f"the error {max(errors.values()):.2g} is above {max_error:g} with every layer in f32")
        kept = [n for n, _ in ranked[: max(2 * len(kept), 1)]]  # the worst one, two, four, ...
    local = [(n.name, e) for n, e in ranked if n not in kept]
    stay = sorted({n.name for n in kept} | {n.name for n in every if n not in found})
    agreement = {n: same_answers([w[n] for w in wanted], [m[n] for m in made]) for n in wanted[0]}
    known = {n: share for n, share in agreement.items() if share is not None}
    return Quantised(narrow, errors, known, local, stay, len(runs), _weight_bytes(model), _weight_bytes(narrow))


def _check(way: str, weights: int, calibration: str, max_error: float | None) -> None:
    if way not in WAYS:
        raise ArgumentError(f"no way '{way}' to quantise: it is {' or '.join(WAYS)}")
    if weights not in (4, 8):
        raise ArgumentError(f"weights have 8 or 4 bits, not {weights}")
    if calibration not in METHODS:
        raise ArgumentError(f"no calibration '{calibration}': it is one of {', '.join(METHODS)}")
    if max_error is not None and not max_error > 0:
        raise ArgumentError(f"an error is a positive number, not {max_error}")


def check_kept(every: Sequence[Layer], keep_f32: Sequence[str]) -> None:
    """Raises `ArgumentError`: a name is that of no layer."""
    known = {n.name for n in every} | {n.operator for n in every}
    for name in keep_f32:
        if name not in known:
            listed = ", ".join(sorted(known)[:8])
            raise ArgumentError(
                f"'{name}' is no layer with constant weights: nothing to keep as it is (there are {listed})"
            )


def inputs_of(model: onnx.ModelProto) -> dict[str, tuple[Any, ...]]:
    """Names and sizes of what the model is given; a size that is free is None."""
    stored = {t.name for t in model.graph.initializer}
    return {
        i.name: tuple(d.dim_value if d.HasField("dim_value") else None for d in i.type.tensor_type.shape.dim)
        for i in model.graph.input
        if i.name not in stored
    }


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with more results."""
    more = onnx.ModelProto()
    more.CopyFrom(model)
    there = {o.name for o in more.graph.output}
    for name in dict.fromkeys(names):
        if name not in there:
            more.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    return more


def _observe(
    model: onnx.ModelProto, found: Sequence[Layer], runs: Sequence[Values], threads: int | None, method: str
) -> Observed:
    """The ranges of what layers read."""
    names = list(dict.fromkeys(model.graph.node[n.place].input[0] for n in found))
    given = [n for n in names if n in inputs_of(model)]
    inner = [n for n in names if n not in given]
    compiled = compile_model(_with_outputs(model, inner), threads=threads)
    observed = Observed()
    for step in (observed.widen, observed.count) if method != "minmax" else (observed.widen,):
        for feeds in runs:
            made = compiled(feeds)
            step({n: made[n] for n in inner} | {n: np.asarray(feeds[n]) for n in given})
    return observed


class _Maker:
    """Narrow models with any choice of layers."""

    def __init__(self, model: onnx.ModelProto, observed: Observed, way: str, weights: int, method: str) -> None:
        self.model, self.observed, self.way, self.weights, self.method = model, observed, way, weights, method
        values = constants(model.graph)
        self.stored = {n: onnx.numpy_helper.from_array(v, n) for n, v in values.items()}

    def alone(self, layer: Layer) -> onnx.GraphProto:
        """One layer, narrow, with its constants and nothing else."""
        node, small = self.model.graph.node[layer.place], onnx.ModelProto()
        small.opset_import.extend(self.model.opset_import)
        small.graph.node.add().CopyFrom(node)
        small.graph.initializer.extend(self.stored[n] for n in node.input if n in self.stored)
        small.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None))
        return self.of([replace(layer, place=0)], small).graph

    def of(self, found: Sequence[Layer], model: onnx.ModelProto | None = None) -> onnx.ModelProto:
        """The model with these layers narrow."""
        model = model or self.model
        made = Rewriting(model)
        for layer in found:
            if self.weights == 4:
                made.four_bits(layer)
            elif self.way == "dynamic":
                made.dynamic(layer)
            else:
                made.static(layer, self.observed.scale(model.graph.node[layer.place].input[0], self.method))
        return made.finished()


def _local_errors(
    model: onnx.ModelProto, maker: _Maker, found: Sequence[Layer], runs: Sequence[Values], threads: int | None
) -> list[tuple[Layer, float]]:
    """The error of each layer alone: what it makes of exact operands, narrow and in f32; largest first."""
    beside = onnx.ModelProto()
    beside.CopyFrom(model)
    pairs: dict[str, str] = {}
    for layer in found:
        single = maker.alone(layer)
        own = single.node
        renamed = {o: f"{o}@{layer.place}" for n in own for o in n.output}
        for node in own:
            copy = beside.graph.node.add()
            copy.CopyFrom(node)
            copy.name = ""
            for names in (copy.input, copy.output):
                names[:] = [renamed.get(n, n) for n in names]
        there = {t.name for t in beside.graph.initializer}
        beside.graph.initializer.extend(t for t in single.initializer if t.name not in there)
        result = model.graph.node[layer.place].output[0]
        pairs[result] = renamed[result]
    if maker.weights == 4:
        beside.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    compiled = compile_model(_with_outputs(beside, [*pairs, *pairs.values()]), threads=threads)
    sums = {n: np.zeros(2) for n in pairs}
    for feeds in runs[:LOCAL]:
        made = compiled(feeds)
        for exact, narrow in pairs.items():
            a, b = made[exact].astype(np.float64), made[narrow].astype(np.float64)
            sums[exact] += (np.square(a - b).sum(), np.square(a).sum())
    errors = [(n, root(*sums[model.graph.node[n.place].output[0]])) for n in found]
    return sorted(errors, key=lambda pair: -pair[1])


LOCAL = 16  # samples for errors of single layers


def _weight_bytes(model: onnx.ModelProto) -> int:
    return sum(onnx.numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
