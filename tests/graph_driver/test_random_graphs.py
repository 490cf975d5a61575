"""Every pass on random graphs, run after it and compared with the graph before: exact ones keep every bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from test_graph_passes import evaluate

import polyc
from polyc.graph_driver.checking.differential import differential
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.passes.manager import BY_NAME, REWRITING, Pass, select

ROUNDING = 2e-5  # of a pass that may round elsewhere, relative to the largest element; docs/models.md states it
SEEDS = range(16)
POINTWISE = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Identity", "Dropout")


class Grown:
    """A graph that grows node by node; `open` are the images that may be read, with their shapes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self.open: dict[str, tuple[int, ...]] = {"x": (1, 4, 6, 6)}

    def weight(self, *shape: int, positive: bool = False) -> str:
        name = f"w{len(self.weights)}"
        made = self.rng.standard_normal(shape).astype("f")
        self.weights[name] = np.abs(made) + np.float32(0.5) if positive else made
        return name

    def integers(self, *values: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.array(values, np.int64)
        return name

    def add(self, kind: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"n{len(self.nodes)}", **attrs))
        self.open[name] = shape
        return name

    def pick(self) -> tuple[str, tuple[int, ...]]:
        names = list(self.open)
        # The newest most of the time: chains are what passes are for.
        name = names[-1] if self.rng.random() < 0.7 else names[self.rng.integers(len(names))]
        return name, self.open[name]

    def step(self) -> None:
        x, shape = self.pick()
        _, c, h, w = shape
        kind = self.rng.integers(14)
        if kind == 0:
            self.add(POINTWISE[self.rng.integers(len(POINTWISE))], [x], shape)
        elif kind == 1:
            y = self.add("Conv", [x, self.weight(4, c, 1, 1), self.weight(4)], (1, 4, h, w))
            self.add("Mul", [y, self.weight(4, 1, 1)], (1, 4, h, w))
        elif kind == 2:
            vectors = [self.weight(c), self.weight(c), self.weight(c), self.weight(c, positive=True)]
            self.add("BatchNormalization", [x, *vectors], shape)
        elif kind == 3:
            y = self.add("Conv", [x, self.weight(5, c, 3, 3)], (1, 5, h, w), pads=[1] * 4)
            vectors = [self.weight(5), self.weight(5), self.weight(5), self.weight(5, positive=True)]
            self.add("BatchNormalization", [y, *vectors], (1, 5, h, w))
        elif kind == 4:
            y = self.add("Transpose", [x], (1, h, w, c), perm=[0, 2, 3, 1])
            del self.open[y]
            self.add("Transpose", [y], shape, perm=[0, 3, 1, 2])
        elif kind == 5:
            y = self.add("Reshape", [x, self.integers(1, c, h * w)], (1, c, h, w))
            self.add("Reshape", [y, self.integers(1, c, h, w)], shape)
            del self.open[y]
        elif kind == 6:
            a = self.add("Relu", [x], shape)
            b = self.add("Relu", [x], shape)
            self.add("Add", [a, b], shape)
        elif kind == 7 and c <= 8:
            self.add("Concat", [x, x], (1, 2 * c, h, w), axis=1)
        elif kind == 8 and c >= 2:
            self.add("Slice", [x, self.integers(1), self.integers(c), self.integers(1)], (1, c - 1, h, w))
        elif kind == 9:
            zero = f"w{len(self.weights)}"
            self.weights[zero] = np.float32(self.rng.choice([0.0, 1.0, 2.0])).reshape(())
            self.add(("Add", "Mul", "Sub")[self.rng.integers(3)], [x, zero], shape)
        elif kind == 10:
            self.add("Mul", [x, self.weight(c, 1, 1)], shape)
        elif kind == 11 and min(h, w) >= 2:
            self.add("MaxPool", [x], (1, c, h - 1, w - 1), kernel_shape=[2, 2])
        elif kind == 12:
            a = self.add("Add", [self.weight(c, 1, 1), self.weight(1, c, 1, 1)], (1, c, 1, 1))
            del self.open[a]
            self.add("Add", [x, a], shape)
        else:
            self.add("Softmax", [x], shape, axis=1)

    def model(self) -> onnx.ModelProto:
        outputs = list(self.open)[-2:]
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 4, 6, 6])],
            [helper.make_tensor_value_info(o, 1, None) for o in outputs],
            [numpy_helper.from_array(w, n) for n, w in self.weights.items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def grown(seed: int, steps: int = 14) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    graph = Grown(seed)
    while len(graph.nodes) < steps:
        graph.step()
    return graph.model(), {"x": graph.rng.standard_normal((1, 4, 6, 6)).astype("f")}


REWRITES = [p for p in select() if p.phase == REWRITING] + [BY_NAME["views"]]


@pytest.mark.parametrize("step", REWRITES, ids=lambda p: p.name)
def test_each_pass_alone(step: Pass) -> None:
    """What it did somewhere, and nowhere more than it may change."""
    did = 0
    for seed in SEEDS:
        model, feeds = grown(seed)
        verdict = differential(import_model(model), [step], None, partial(evaluate, feeds=feeds),
                               0.0 if step.exact else ROUNDING)  # fmt: skip
        assert verdict.guilty is None, f"seed {seed}: {verdict}"
        did += sum(s.did != "nothing to do" for s in verdict.stages)
    assert did >= 2 or step.name == "constants", (
        f"{step.name} had nothing to do in {len(SEEDS)} graphs"
    )  # (import has run what is constant)


def test_all_in_their_order() -> None:
    for seed in SEEDS:
        model, feeds = grown(seed)
        verdict = differential(import_model(model), REWRITES, None, partial(evaluate, feeds=feeds), ROUNDING)
        assert verdict.guilty is None, f"seed {seed}: {verdict}"
        exact = [s for s in verdict.stages if BY_NAME[s.name].exact]
        assert all(s.error == 0.0 for s in exact), f"seed {seed}: {verdict}"


@pytest.mark.parametrize("seed", [101, pytest.param(100, marks=pytest.mark.long)])
def test_compiled_ones_are_what_numpy_says(seed: int) -> None:
    """The default result, all passes included, within 1e-5 of the largest element; with `exact` as close."""
    model, feeds = grown(seed)
    expected = evaluate(import_model(model), feeds)
    for options in ({}, {"exact": True}):
        compiled = polyc.compile_model(model, threads=1, **options)
        said = [n for n in compiled.report().notes if "elsewhere than the operators' definitions" in n]
        did = [p.partition(":")[0] for p in compiled.report().passes if not p.endswith("nothing to do")]
        rounding = [name for name in did if not BY_NAME[name].exact]
        assert bool(said) == bool(rounding) == (not options) and all(name in said[0] for name in rounding)
        found = compiled(feeds)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5 * np.abs(value).max())
