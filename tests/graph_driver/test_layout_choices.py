"""What the cost model chooses where one of the ways was measured to be clearly faster (the test checks no time).

Measured with interleaved `thread_time` on Zen 3 (AVX2, 512 KiB of L2); figures are the time of the model with its
images in blocks (or channels last) over that of the model as it is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper
from tiny_models import model_of

from polyc.emit import targets
from polyc.graph_driver.fusion import groups
from polyc.graph_driver.fusion.machine import for_cpu
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.layouts.choose import Chosen, choose_formats
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.passes import manager
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.target import Target
from polyc.poly.tree import Promote, walk
from polyc.scheduler.cost.tile_plan import constant_layouts
from polyc.scheduler.strategies.auto import automatic


def machine() -> Target:
    """This machine with the figures of the one that was measured."""
    return replace(
        targets.host(), vector_bits=256, vector_registers=16, fma_units=2, l1=32 << 10, l2=512 << 10, l3=32 << 20
    )


def network(*layers: tuple[int, int, int, int, int], size: int) -> onnx.ModelProto:
    """Convolutions with ReLU, one after the other: (channels in, out, kernel, stride, groups)."""
    nodes, weights, x = [], {}, "x"
    for k, (c, m, kernel, stride, group) in enumerate(layers):
        weights[f"w{k}"] = np.ones((m, c // group, kernel, kernel), np.float32)
        nodes.append(
            helper.make_node("Conv", [x, f"w{k}"], [f"c{k}"], pads=[kernel // 2] * 4, strides=[stride] * 2, group=group)
        )
        nodes.append(helper.make_node("Relu", [f"c{k}"], [x := f"t{k}"]))
    return model_of(nodes, {"x": [1, layers[0][0], size, size]}, {x: None}, weights)


def inverted(channels: int, size: int, stride: int, kernel: int, few: int) -> onnx.ModelProto:
    """1x1, depthwise and 1x1 convolution, as in MobileNet's blocks."""
    return network(
        (few, channels, 1, 1, 1), (channels, channels, kernel, stride, channels), (channels, few, 1, 1, 1), size=size
    )


def chosen(model: onnx.ModelProto, layouts: str = "auto") -> Chosen:
    graph, target = import_model(model), machine()
    manager.run(graph, manager.select(), target)
    found = groups.form_groups(graph, groups.translate(graph, lookup), True, for_cpu(target))
    return choose_formats(graph, found, target, layouts)


@pytest.mark.parametrize(
    ("channels", "size", "stride", "kernel", "few", "ratio"),
    [
        (144, 56, 2, 3, 24, 1.09),  # columns a stride apart are loaded whole and shuffled: cheap as the model is
        (96, 112, 2, 3, 16, 1.09),
        (72, 56, 2, 5, 24, 1.28),
        (192, 28, 2, 3, 32, 0.84),
        (576, 14, 2, 3, 96, 0.85),
        (672, 14, 2, 5, 112, 0.83),
        (384, 14, 1, 3, 64, 0.89),
    ],
)
def test_blocks_of_mobile_networks(channels: int, size: int, stride: int, kernel: int, few: int, ratio: float) -> None:
    found = chosen(inverted(channels, size, stride, kernel, few))
    assert bool(found.stored) == (ratio < 1.0)


@pytest.mark.parametrize(
    ("layers", "size", "ratio"),
    [
        (((32, 64, 1, 1, 1), (64, 64, 3, 2, 64)), 56, 1.23),
        (((64, 128, 1, 1, 1), (128, 128, 3, 1, 128)), 28, 1.31),
        (((64, 64, 3, 2, 64), (64, 128, 1, 1, 1)), 56, 1.42),
        (((48, 17, 1, 1, 1), (17, 48, 1, 1, 1)), 30, 1.24),  # a second block of channels with one in it
    ],
)
def test_pairs_that_blocks_make_slower(
    layers: tuple[tuple[int, int, int, int, int], ...], size: int, ratio: float
) -> None:
    assert ratio > 1.05 and not chosen(network(*layers, size=size)).stored


def test_one_convolution_has_no_image_to_store() -> None:
    for layer in ((144, 144, 3, 2, 144), (320, 1280, 1, 1, 1)):
        assert not chosen(network(layer, size=14)).stored


def test_rows_are_packed_under_loops_over_blocks() -> None:
    """Each step of 1x1 320 -> 1280 on 7x7 reads its pixels from a line of its own, for each block of filters again
    (762 us without, 411 with)."""
    found = chosen(network((320, 1280, 1, 1, 1), (1280, 320, 1, 1, 1), size=7), "blocked")
    scop = found.groups[0].scop
    assert scop is not None and len(scop.arrays[scop.results[0]].shape) == 4
    for array, layout in constant_layouts(scop, frozenset(scop.args[1:]), machine()).items():  # as it will be compiled
        scop = relayout(scop, array, layout)
    kept = [n.buffer for n in walk(automatic(scop, machine(), 1).tree) if isinstance(n, Promote)]
    assert f"{scop.args[0]}_rows" in kept
