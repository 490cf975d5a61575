"""Caches that grow have room ahead: the same results as with arrays that are as long as they must be, and no copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import polyc
from polyc.graph_driver.growing.with_room import with_room

HEADS, SIZE = 3, 16
rng = np.random.default_rng()


def gauss(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def decoder(layers: int, turned: bool) -> onnx.ModelProto:
    """Attention over what has been and what comes, as exporters write it; `turned`: keys lie `[batch, size, rows]`."""
    nodes, names = [], []
    place, cache = (3, ["batch", HEADS, SIZE, "past"]) if turned else (2, ["batch", HEADS, "past", SIZE])
    perm = [0, 1, 3, 2]
    floats: dict[str, Any] = {"x": ["batch", HEADS, "rows", SIZE]}
    outputs: dict[str, Any] = {}
    x = "x"
    for k in range(layers):
        nodes.append(helper.make_node("Transpose", [x], [f"xt{k}"], perm=perm))
        nodes.append(helper.make_node("Concat", [f"pk{k}", f"xt{k}" if turned else x], [f"nk{k}"], axis=place))
        nodes.append(helper.make_node("Concat", [f"pv{k}", x], [f"nv{k}"], axis=2))
        keys = f"nk{k}"
        if not turned:
            keys = f"kt{k}"
            nodes.append(helper.make_node("Transpose", [f"nk{k}"], [keys], perm=perm))
        nodes.append(helper.make_node("MatMul", [x, keys], [f"scores{k}"]))
        nodes.append(helper.make_node("Softmax", [f"scores{k}"], [f"shares{k}"], axis=-1))
        nodes.append(helper.make_node("MatMul", [f"shares{k}", f"nv{k}"], [f"y{k}"]))
        floats |= {f"pk{k}": cache, f"pv{k}": ["batch", HEADS, "past", SIZE]}
        names += [f"nk{k}", f"nv{k}"]
        x = f"y{k}"
    outputs = {n: None for n in (x, *names)}
    graph = helper.make_graph(
        nodes, "decoder", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in floats.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("turned, first", [(False, 5), (True, 5), (False, 0)])
def test_calls_that_grow_are_those_of_arrays_of_their_length(turned: bool, first: int) -> None:
    layers, batch = 2, 2
    model = decoder(layers, turned)
    plain = polyc.compile_model(model, threads=1, dims={"past": (0, None)})
    growing = polyc.Growing(model, threads=1, symbolic=True)
    caches: dict[str, np.ndarray] = {}
    for k in range(layers):
        caches[f"pk{k}"] = gauss(batch, HEADS, SIZE, first) if turned else gauss(batch, HEADS, first, SIZE)
        caches[f"pv{k}"] = gauss(batch, HEADS, first, SIZE)
    growing.start(caches)
    for rows in (1, 1, 3, 70, 1, 200, 1):  # beyond the room twice
        x = gauss(batch, HEADS, rows, SIZE)
        want = plain({"x": x, **caches})
        got = growing({"x": x})
        assert list(got) == [f"y{layers - 1}"]
        np.testing.assert_allclose(got[f"y{layers - 1}"], want[f"y{layers - 1}"], rtol=1e-4, atol=1e-5)
        caches = {f"p{n[1:]}": np.array(v) for n, v in want.items() if n.startswith("n")}
        for name, value in caches.items():
            np.testing.assert_allclose(growing.cache(name), value, rtol=1e-4, atol=1e-5)
    assert not [n for n in growing.model.report().notes if "copied" in n]
    assert growing.model.report().decisions and not growing.model.report().host


@pytest.mark.parametrize("flat", [pytest.param(False, marks=pytest.mark.long), True])
def test_attention_of_onnx(flat: bool) -> None:
    """Its caches grow, too, with heads apart or side by side."""
    sides = {"q_num_heads": HEADS, "kv_num_heads": HEADS} if flat else {}
    rows = ["batch", "rows", HEADS * SIZE] if flat else ["batch", HEADS, "rows", SIZE]
    node = helper.make_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"], is_causal=1, **sides)
    floats = dict.fromkeys("qkv", rows) | dict.fromkeys(("pk", "pv"), ["batch", HEADS, "past", SIZE])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in floats.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "nk", "nv")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    plain, growing = polyc.compile_model(model, threads=1), polyc.Growing(model, threads=1, dims={"past": (1, None)})
    caches = {n: gauss(1, HEADS, 4, SIZE) for n in ("pk", "pv")}
    growing.start(caches)
    for count in (1, 2, 70, 1):
        feeds = {n: gauss(1, count, HEADS * SIZE) if flat else gauss(1, HEADS, count, SIZE) for n in "qkv"}
        want = plain({**feeds, **caches})
        np.testing.assert_allclose(growing(feeds)["y"], want["y"], rtol=1e-4, atol=1e-5)
        caches = {"pk": np.array(want["nk"]), "pv": np.array(want["nv"])}
        np.testing.assert_array_equal(growing.cache("nv"), caches["pv"])
    assert not [n for n in growing.model.report().notes if "copied" in n]


def test_a_model_without_caches_is_refused() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 3]) for n in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(polyc.ModelError, match="no cache that grows"):
        with_room(model)
