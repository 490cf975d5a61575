"""Which nodes of an f32 model become narrow (`--precision auto`), and what that costs (`auto` and `int8`): measured.

The model runs on data, or on a few random operands. A node may be f16 if none of its operands and results comes within
a factor of the ends of f16: `HEADROOM` of given data, `UNKNOWN` of random ones, which say less of the size of real
ones. bf16 has the range of f32. Then the nodes whose values lose most by being stored narrow stay f32, one, two, four,
... of them, until no output's error is above the bound. Of f16 and bf16 that counts in which more bytes are narrow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.checking.check import random_input
from polyc.graph_driver.checking.differential import copied
from polyc.graph_driver.compiling.from_source import compile_built
from polyc.graph_driver.execution.watching import Watch
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.precisions import AUTO, BF16, F16, INT8
from polyc.graph_driver.narrowing.calibrate import samples
from polyc.graph_driver.narrowing.measures import relative_error
from polyc.graph_driver.options import FAST, CompileOptions
from polyc.graph_driver.passes.naming import is_named
from polyc.graph_driver.passes.precision import WIDE, Precision, make_narrow
from polyc.graph_driver.passes.row_codes import LARGEST, weighed, weight_codes
from polyc.graph_driver.planning.index_limits import index_limits
from polyc.graph_driver.running.model import Model
from polyc.poly.dtypes import BY_NAME, f32
from polyc.poly.errors import ArgumentError, PolycError
from polyc.poly.records import dataclass

BOUND = 0.01
"""The error of an output that `auto` allows where the user says nothing (C8 of the features: 1e-2)."""
HEADROOM, UNKNOWN = 4.0, 64.0
PROBES, MOST = 3, 16  # random operands; samples of given data
Values = Mapping[str, np.ndarray]
Choice = tuple[str, Collection[str], list[str]]
"""A type (or `int8`), what stays f32 by the names of operators, nodes and results, and lines of the report."""


def choose(graph: Graph, wanted: Precision, keep: Collection[str]) -> Choice:
    """What becomes narrow in `graph`, which is not changed.

    Args:
        wanted: with `kind` `auto` or `int8`.
        keep: what stays f32 in any case.

    Raises:
        ArgumentError: the data do not fit, or the error of `int8` is too large with all of it in f32.
    """
    if wanted.kind == INT8 and not any(not is_named(w.node, keep) for w in weighed(graph)):
        return INT8, keep, ["int8: the model has no products with constant weights in f32"]
    try:
        measured = _Measured(graph, wanted.data)
    except PolycError as refusal:
        if wanted.data or wanted.kind == INT8 and wanted.max_error is not None:
            raise
        why = " ".join(str(refusal).split())[:160]
        if wanted.kind == INT8:
            return INT8, keep, [f"int8: the error could not be measured: {why}"]
        return F16, _everything(graph), [f"auto: all in f32: the error could not be measured: {why}"]
    if wanted.kind == INT8:
        return _codes(measured, keep, wanted.max_error)
    bound = BOUND if wanted.max_error is None else wanted.max_error
    tried = [_try(measured, kind, keep, bound) for kind in (F16, BF16)]
    best = max(tried, key=lambda t: (t.narrow, -t.error))
    lines = [f"{AUTO}: {best.line(measured)}", *(f"{AUTO}: not {t.line(measured)}" for t in tried if t is not best)]
    return best.kind, best.keep, lines


def _everything(graph: Graph) -> list[str]:
    return [o for n in graph.nodes for o in n.writes()]


@dataclass(frozen=True)
class Tried:
    """One choice: its type, what stays f32 (how many `nodes`), bytes of tensors that become narrow, its error."""

    kind: str
    keep: Collection[str]
    nodes: int
    narrow: int
    error: float

    def line(self, measured: _Measured) -> str:
        """For the report."""
        return (
            f"{self.kind} with {self.nodes} of {len(measured.graph.nodes)} nodes in f32, {self.narrow:,} bytes narrow: "
            f"relative error {self.error:.2e} {measured.where}"
        )


class _Measured:
    """The model in f32 on some operands: its outputs, and the values of all tensors."""

    def __init__(self, graph: Graph, data: Values) -> None:
        self.graph = graph
        self.options = CompileOptions(threads=1, passes=(), fuse=False, tier=FAST, layouts="as_given")
        model = self.compiled(copied(graph))
        self.runs = _operands(graph, model, data)
        self.headroom = HEADROOM if data else UNKNOWN
        self.where = f"on {len(self.runs)} samples" if data else f"on {len(self.runs)} random operands"
        self.outputs: list[Mapping[str, Any]] = []
        self.values: list[Mapping[str, np.ndarray]] = []
        for feeds in self.runs:
            watch = Watch()
            self.outputs.append(model.run(feeds, "eager", observer=watch))
            self.values.append({**watch.values, **feeds})
        self.model = model

    def compiled(self, graph: Graph) -> Model:
        """A graph as it stands, on this machine."""
        return compile_built(graph, platform_of("cpu", 1), self.options)

    def error(self, kind: str, keep: Collection[str]) -> float:
        """The largest error of an output when all but `keep` is narrow; infinite where one is no longer finite."""
        graph = copied(self.graph)
        make_narrow(graph, kind, keep)
        model = self.compiled(graph)
        got = [model(feeds) for feeds in self.runs]
        real = [n for n in self.outputs[0] if np.asarray(self.outputs[0][n]).dtype.kind == "f"]
        return max((_error([w[n] for w in self.outputs], [g[n] for g in got]) for n in real), default=0.0)


def _error(wanted: Sequence[np.ndarray], made: Sequence[np.ndarray]) -> float:
    if any(not np.array_equal(np.isfinite(w), np.isfinite(m)) for w, m in zip(wanted, made, strict=True)):
        return float("inf")
    return relative_error(*([np.where(np.isfinite(v), v, 0) for v in values] for values in (wanted, made)))


def _operands(graph: Graph, model: Model, data: Values) -> list[dict[str, np.ndarray]]:
    """The data cut into what the model takes at once, or random operands. Raises `ArgumentError`: data do not fit."""
    if data:
        sizes = {n: graph.tensors[n].shape or () for n in graph.inputs}
        return [dict(s) for s in samples(data, graph.inputs, sizes)][:MOST]
    inputs, limits = model.inputs_for({}, {}), index_limits(graph)
    if odd := [name for name, (dtype, _) in inputs.items() if not dtype]:
        raise ArgumentError(f"input '{odd[0]}' is no tensor of numbers, of which random ones could be made")
    return [
        {name: random_input(name, dtype, shape, seed, limits.get(name)) for name, (dtype, shape) in inputs.items()}
        for seed in range(PROBES)
    ]


def _try(measured: _Measured, kind: str, keep: Collection[str], bound: float) -> Tried:
    """The narrowest choice of this type within the bound: the worst nodes stay f32, one, two, four, ... of them."""
    graph = measured.graph
    wide = [n for n in graph.nodes if n.op_type in WIDE or is_named(n, keep)]
    limit = float(ml_dtypes.finfo(BY_NAME[kind].np).max) / measured.headroom if kind == F16 else float("inf")
    large = {name for name in graph.tensors if _magnitude(measured, name) > limit}
    wide += [n for n in graph.nodes if large & {*n.reads(), *n.writes()}]
    loss = {o: max(_loss(v[o], kind) for v in measured.values) for n in graph.nodes for o in n.writes()
            if all(o in v for v in measured.values)}  # fmt: skip
    order = sorted(
        (n for n in graph.nodes if n not in wide), key=lambda n: -max((loss.get(o, 0) for o in n.writes()), default=0)
    )
    more = 0
    while True:
        stay = {id(n) for n in (*wide, *order[:more])}
        names = [o for n in graph.nodes if id(n) in stay for o in n.writes()]
        narrow = sum(_bytes(graph, o, kind) for n in graph.nodes if id(n) not in stay for o in n.writes())
        error = measured.error(kind, names) if len(stay) < len(graph.nodes) else 0.0
        if error <= bound:
            return Tried(kind, names, len(stay), narrow, error)
        more = max(2 * more, 1)


def _magnitude(measured: _Measured, name: str) -> float:
    """The largest finite magnitude of a tensor."""
    const = measured.graph.tensors[name].const
    found = [const] if const is not None else [v[name] for v in measured.values if name in v]
    real = [np.abs(np.asarray(f, np.float64)) for f in found if f.dtype.kind == "f" and f.size]
    return max((float(np.max(r, where=np.isfinite(r), initial=0)) for r in real), default=0.0)


def _loss(value: np.ndarray, kind: str) -> float:
    """The error of a tensor that is stored as `kind`, relative to the root of its mean square."""
    value = np.asarray(value)
    if value.dtype != np.float32:
        return 0.0
    with np.errstate(over="ignore"):
        return _error([value], [value.astype(BY_NAME[kind].np).astype(np.float32)])


def _bytes(graph: Graph, name: str, kind: str) -> int:
    """What a tensor that becomes narrow takes then, with symbolic sizes at typical ones."""
    tensor = graph.tensors[name]
    if tensor.dtype != f32 or tensor.shape is None:
        return 0
    size = tensor.size
    if graph.symbols is not None and not isinstance(size, int):
        size = size.at(graph.symbols.typical)
    return int(size) * BY_NAME[kind].bytes


def _codes(measured: _Measured, keep: Collection[str], bound: float | None) -> Choice:
    """Products of codes, the worst in f32 where the error is bounded."""
    found = [w for w in weighed(measured.graph) if not is_named(w.node, keep)]
    losses = {w.node.outputs[0]: max(_code_loss(v[w.x], w.is_image, w.weights) for v in measured.values) for w in found}
    order, more = sorted(losses, key=lambda name: -losses[name]), 0
    while True:
        names = (*keep, *order[:more])
        error = measured.error(INT8, names) if more < len(order) else 0.0
        if bound is None or error <= bound:
            break
        more = max(2 * more, 1)
    stay = ", ".join(order[:more]) or "none"
    worst = f"; the largest of one alone: {losses[order[0]]:.2e} at {order[0]}"
    line = f"{len(order[more:])} products of codes, in f32 for their error: {stay}; relative error {error:.2e}"
    return INT8, names, [f"int8: {line} {measured.where}{worst}"]


def _code_loss(x: np.ndarray, image: bool, weights: np.ndarray) -> float:
    """The error of the codes of an operand and of the weights, relative to these: of their product at most about."""
    most = np.abs(x).max(None if image else -1, keepdims=True, initial=0)
    step = np.where(most > 0, most / LARGEST, 1)
    codes, steps = weight_codes(weights, 0 if image else 1)
    worth = steps.reshape(-1, *[1] * (weights.ndim - 1)) if image else steps
    return float(np.hypot(_error([x], [np.rint(x / step) * step]), _error([weights], [codes * worth])))
