"""Depthwise and 1x1 convolutions become one kernel where the model expects a gain, and only there."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from compared import checked, labels, node
from tiny_models import model_of

from polyc.emit import targets
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.model import Model

WIDTH = 63


def proto(
    height: int, stride: int = 1, wide: int = WIDTH, channels: int | None = None, residual: bool = False,
    outputs: tuple[str, ...] = (), filters: int = 7, batch: int = 1,
) -> onnx.ModelProto:  # fmt: skip
    """Depthwise 3x3, Clip, 1x1, maybe an Add; what stands between the convolutions just leaves L2 unless `channels`
    says otherwise."""
    high = (height - 1) // stride + 1
    across = (wide - 1) // stride + 1
    channels = channels or targets.host().l2 // (4 * batch * high * across) + 2
    rng = np.random.default_rng()
    shapes = {"f": (channels, 1, 3, 3), "b": (channels,), "v": (filters, channels, 1, 1), "d": (filters,)}
    weights = {n: (rng.standard_normal(s) / 4).astype(np.float32) for n, s in shapes.items()}
    weights |= {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
    nodes = [
        node("Conv", ["x", "f", "b"], "t", group=channels, strides=[stride] * 2, pads=[1] * 4),
        node("Clip", ["t", "low", "high"], "u"),
        node("Conv", ["u", "v", "d"], "w" if residual else "y"),
        *([node("Add", ["w", "r"], "y")] if residual else []),
    ]
    shape = [batch, channels, high, across]
    results = {"y": [batch, filters, high, across], **{n: shape for n in outputs}}
    given = {"x": [batch, channels, height, wide]} | ({"r": results["y"]} if residual else {})
    return model_of(nodes, given, results, weights)


def decision(model: Model) -> str:
    """What was decided about the pair."""
    (said,) = (d for d in model.report().decisions if d.startswith("Conv"))
    return said


@pytest.mark.parametrize("stride, threads, residual", [(1, 1, True), (2, 1, False), (1, 2, False)])
def test_a_pair_is_one_kernel(stride: int, threads: int, residual: bool) -> None:
    model = checked(proto(45 * stride, stride=stride, wide=WIDTH * stride, residual=residual), threads)
    assert labels(model) == ["Conv+Clip+Conv" + "+Add" * residual]
    assert "joined" in decision(model) and "thousand cycles of L3" in decision(model)


def test_of_several_images_a_whole_one_may_be_a_block() -> None:
    """What all images leave in between counts; no rows are copied twice then."""
    model = checked(proto(13, batch=5, wide=21))
    assert len(model.plan.steps) == 1
    assert "in blocks of 13 rows" in decision(model) and "costs 0 of copying" in decision(model)


@pytest.mark.parametrize("height, channels, reason", [
    (45, 11, "KB in between stay in L2 anyway"),
    (47, None, "rows, which half of L2 holds, divides 47 rows"),
])  # fmt: skip
def test_where_nothing_is_gained_they_stay_apart(height: int, channels: int | None, reason: str) -> None:
    model = checked(proto(height, channels=channels))
    assert len(model.plan.steps) == 2 and reason in decision(model)


def test_halves_which_add_up_in_f32_stay_apart() -> None:
    model = compile_model(proto(45), threads=1, dtype="f16")
    assert not [label for label in labels(model) if label.count("Conv") > 1]


def test_values_that_are_an_output_stay_in_memory() -> None:
    assert len(checked(proto(45, outputs=("u",))).plan.steps) == 2
