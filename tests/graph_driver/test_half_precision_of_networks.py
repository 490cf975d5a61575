"""The nine light models in f16: half the memory of activations, results near those in f32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import real_models as real
from onnx import numpy_helper

import polyc

GAIN = 0.7  # of weights drawn for ReLU: with it the sums of residual networks stay in the range of f16
NEAR = 1e-2
MOST = 0.505  # half, but for parts of concatenations that do not begin at multiples of the alignment in f16


def in_range(model: onnx.ModelProto) -> onnx.ModelProto:
    """Random weights (those of the file are one number each, and activations grow to 1e10 and more)."""
    drawn = real.with_random_weights(model, np.random.default_rng(3))
    for tensor in drawn.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.ndim > 1:
            tensor.CopyFrom(numpy_helper.from_array(value * np.float32(GAIN), tensor.name))
    return drawn


@pytest.mark.parametrize("name", [
    n if n in ("squeezenet", "shufflenet") else pytest.param(n, marks=pytest.mark.long) for n in real.LIGHT_NAMES
])  # fmt: skip
def test_light_model_in_f16(name: str) -> None:
    model = in_range(onnx.load(real.light_path(name)))
    feeds = {n: np.random.default_rng(4).random(x.shape, np.float32) for n, x in real.suite_input(model).items()}
    wide, narrow = (polyc.compile_model(model, disable=("winograd",), **o) for o in ({}, {"dtype": "f16"}))
    found, expected = narrow(feeds), wide(feeds)
    assert real.largest_error(found, expected) < NEAR
    between = [activations(m) for m in (narrow, wide)]
    inputs = sum(f.nbytes for f in feeds.values())  # read where they lie in f32; in f16 a cast may be stored
    assert between[0] <= MOST * (between[1] + inputs)


def activations(model: polyc.Model) -> int:
    """Bytes of all tensors between kernels, without what kernels keep for themselves: that is f32 unless memory counts
    more than time (`memory="minimal"`), for loops that read a padded copy widen it once and not with each read."""
    scratch = {name for s in model.plan.steps for name in s.scratch}
    return sum(t.size for t in model.plan.lifetimes if t.name not in scratch)
