"""Models that compute again what a change reaches, beside the same models run as a whole."""

from __future__ import annotations

import random
import time
from itertools import product
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import polyc
from polyc.graph_driver.incremental.regions import under
from polyc.poly.errors import ArgumentError, ModelError
from tests.slices.test_why import small_network


def images(n: int, channels: int, layers: int, strided: bool) -> onnx.ModelProto:
    """Convolutions of 3 x 3, the second of stride 2 and a skip over the last if `strided`."""
    rng = np.random.default_rng(layers)
    nodes, weights, shown, before = [], [], "x", 3
    for k in range(layers):
        w = rng.standard_normal((channels, before, 3, 3)) / np.sqrt(9 * before)
        values = (w.astype("f"), rng.standard_normal(channels).astype("f"))
        weights += [numpy_helper.from_array(v, f"{a}{k}") for a, v in zip("wb", values)]
        step = [2, 2] if strided and k == 1 else [1, 1]
        nodes.append(helper.make_node("Conv", [shown, f"w{k}", f"b{k}"], [f"c{k}"], pads=[1] * 4, strides=step))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"]))
        shown, before = f"r{k}", channels
    if strided:
        nodes.append(helper.make_node("Add", [f"r{layers - 1}", f"r{layers - 2}"], ["y"]))
        shown, n = "y", (n + 1) // 2
        nodes.append(helper.make_node("MaxPool", [shown], ["p"], kernel_shape=[2, 2], strides=[2, 2]))
        nodes.append(helper.make_node("GlobalAveragePool", ["p"], ["m"]))
    ends = [("p", [1, channels, n // 2, n // 2]), ("m", [1, channels, 1, 1])] if strided else []
    ends = ends or [(shown, [1, channels, n, n])]
    size = n if not strided else None
    made = helper.make_graph(
        nodes, "images", [helper.make_tensor_value_info("x", 1, [1, 3, size or 2 * n, size or 2 * n])],
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in ends], weights,
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(a[n].tobytes() == b[n].tobytes() for n in b)


def test_a_patch_gives_the_bits_of_a_whole_run() -> None:
    model = images(32, 4, 3, strided=True)
    whole = polyc.compile_model(model, reproducible=True, threads=1)
    kept = polyc.incremental(model, threads=1)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 32, 32)).astype("f")
    assert equal(kept.run({"x": x}), whole({"x": x}))
    for top, left in ((29, 0),):  # a corner; `x` below is changed inside
        x[:, :, top : top + 3, left : left + 4] = rng.standard_normal((1, 3, 3, 4)).astype("f")
        before = {n: v.copy() for n, v in kept.outputs.items()}
        done = kept.update({f"x[:, :, {top}:{top + 3}, {left}:{left + 4}]": x[:, :, top : top + 3, left : left + 4]})
        assert equal(kept.outputs, whole({"x": x})) and not equal(kept.outputs, before)
        assert 0 < done.share < 0.25
        rows, columns = done.regions["r0"][2:]
        assert rows == (max(top - 1, 0), min(top + 4, 32)) and columns == (max(left - 1, 0), left + 5)
    x[0, 1, 10, 13] += 1
    assert kept.update({"x": x}).regions["r0"][2:] == ((9, 12), (12, 15))
    assert equal(kept.outputs, whole({"x": x}))
    assert kept.update({"x": x}).instances == 0


def test_what_does_not_fit_is_refused() -> None:
    kept = polyc.incremental(images(8, 2, 1, strided=False), threads=1)
    x = np.zeros((1, 3, 8, 8), "f")
    with pytest.raises(ArgumentError, match="run the model once"):
        kept.update({"x": x})
    kept.run({"x": x})
    for change, said in (
        ({"y": x}, "no input 'y'"), ({"x[0]": x.astype("d")}, "is f32"), ({"x[0, 0, 8]": x}, "outside"),
        ({"x[0, :2]": np.zeros((3, 8, 8), "f")}, "selects"), ({"x": x[0]}, "has shape"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            kept.update(change)
    y = kept.outputs["r0"].copy()
    with pytest.raises(ArgumentError, match="no input 'y'"):  # what stands before it is not put in, either
        kept.update({"x[0]": x[0] + 1, "y": x})
    assert kept.update({"x": x}).instances == 0 and np.array_equal(kept.outputs["r0"], y)
    node = helper.make_node("NonZero", ["x"], ["y"])
    ends = [helper.make_tensor_value_info("x", 1, [4])], [helper.make_tensor_value_info("y", 7, [1, None])]
    with pytest.raises(ModelError, match="has no loops"):
        polyc.incremental(helper.make_model(helper.make_graph([node], "g", *ends)))


def test_an_update_that_does_not_end_leaves_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = polyc.incremental(images(8, 2, 1, strided=False), threads=1)
    x = np.ones((1, 3, 8, 8), "f")
    kept.run({"x": x})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(kept), "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.update({"x[0, 0, 0, 0]": np.float32(2)})
    for asked in (lambda: kept.outputs, lambda: kept.update({"x": x})):
        with pytest.raises(ArgumentError, match="run the model once"):
            asked()
    assert kept.run({"x": x})["r0"].any()


def test_a_number_may_change() -> None:
    ends = [helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", [3]), ("s", []), ("y", [3]))]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "s"], ["y"])], "g", ends[:2], ends[2:])
    kept = polyc.incremental(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    x = np.arange(3, dtype="f")
    kept.run({"x": x, "s": np.float32(2)})
    kept.update({"s": np.float32(5)})
    assert kept.outputs["y"].tolist() == [0, 5, 10]


def test_boxes_under_another_shape() -> None:
    pick = random.Random(0)
    for before, after in (((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 4)), ((4, 6), (3, 8)), ((1, 5), (5, 1)), ((8,), (2, 4))):
        numbers = np.arange(prod(before)).reshape(before)
        for _ in range(20):
            region = tuple((a, pick.randint(a + 1, n)) for n in before for a in [pick.randrange(n)])
            inside = set(numbers[tuple(slice(*r) for r in region)].ravel().tolist())
            found = under(region, before, after)
            held = {i for i in inside if all(a <= k < b for k, (a, b) in zip(np.unravel_index(i, after), found))}
            assert held == inside
            for d, end in product(range(len(after)), (0, 1)):  # and no smaller one by a side where all is one run
                if len(after) == 1:
                    smaller = [list(r) for r in found]
                    smaller[d][end] += 1 - 2 * end
                    assert not inside <= set(range(*smaller[d]))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed: int) -> None:
    model = small_network(seed)
    whole, kept = polyc.compile_model(model, reproducible=True, threads=1), polyc.incremental(model, threads=1)
    rng = np.random.default_rng(seed)
    shape = kept.graph.tensors["x"].shape
    assert shape is not None
    x = rng.standard_normal(shape).astype("f")
    assert equal(kept.run({"x": x}), whole({"x": x}))
    for _ in range(3):
        ends = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in shape]
        where = tuple(slice(*e) for e in ends)
        x[where] = rng.standard_normal(x[where].shape).astype("f")
        kept.update({f"x[{', '.join(f'{a}:{b}' for a, b in ends)}]": x[where]})
        assert equal(kept.outputs, whole({"x": x}))


@pytest.mark.long
def test_a_patch_of_a_large_picture_takes_a_twentieth() -> None:
    n, model = 1024, images(1024, 16, 8, strided=False)
    whole, kept = polyc.compile_model(model, reproducible=True, threads=1), polyc.incremental(model, threads=1)
    x = np.random.default_rng(1).standard_normal((1, 3, n, n)).astype("f")
    kept.run({"x": x})
    times: dict[str, list[float]] = {"whole": [], "patch": []}
    for k in range(4):
        x[:, :, 500:532, 480:512] += k + 1
        start = time.perf_counter()
        done = kept.update({"x[:, :, 500:532, 480:512]": x[:, :, 500:532, 480:512]})
        between = time.perf_counter()
        results = whole({"x": x})
        times["whole"].append(time.perf_counter() - between)
        times["patch"].append(between - start)
        assert equal(kept.outputs, results)
    first = min(times["whole"])
    assert first >= 20 * min(times["patch"][1:])  # the first makes the code of the parts
    assert min(times["patch"][1:]) <= (done.share + 0.03) * first
