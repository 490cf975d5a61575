"""Operators of language models against ONNX Runtime, whose operators they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_contrib import check, f32, model_of

import polyc

onnxruntime = pytest.importorskip("onnxruntime")
rng = np.random.default_rng(3)


def tables(positions: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of rotary embeddings."""
    angles = np.outer(np.arange(positions), 100.0 ** (-np.arange(size // 2) * 2 / size))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@pytest.mark.parametrize("opset", [14, 21, 23])
def test_skip_simplified_norm(opset: int) -> None:
    given = {"x": f32(2, 3, 8), "skip": f32(2, 3, 8), "gamma": f32(8)}
    check("SkipSimplifiedLayerNormalization", given, outputs=4, opset=opset, skip=(1, 2), epsilon=1e-5)
    check("SkipSimplifiedLayerNormalization", {**given, "bias": f32(8)}, opset=opset, epsilon=1e-5)


@pytest.mark.parametrize("opset", [17, 21])
def test_simplified_norm(opset: int) -> None:
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["y"], epsilon=1e-5, axis=-1)
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", (2, 8)), ("s", (8,)), ("y", None))
    ]
    graph = helper.make_graph([node], "g", infos[:2], infos[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    feeds = {"x": f32(2, 8), "s": f32(8)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = polyc.compile_model(model, threads=1)
    assert not compiled.report().host
    np.testing.assert_allclose(compiled(feeds)["y"], session.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
def test_rotary(interleaved: int, turned: int) -> None:
    cosine, sine = tables(10, turned or 8)
    places = np.array([[0, 3, 4], [9, 1, 5]])
    attrs: dict[str, Any] = {"interleaved": interleaved}
    if turned:
        attrs |= {"rotary_embedding_dim": turned, "num_heads": 2}
    check("RotaryEmbedding", {"x": f32(2, 3, 16), "p": places, "c": cosine, "s": sine}, **attrs)
    check("RotaryEmbedding", {"x": f32(2, 3, 16), "p": np.array([4]), "c": cosine, "s": sine}, **attrs)
    check("RotaryEmbedding", {"x": f32(2, 2, 3, 8), "p": places, "c": cosine, "s": sine}, **attrs)


def attention(rows: int, held: int, lengths: list[int], total: int, packed: bool = False, **attrs: Any) -> None:
    """`held` positions of room or past, `lengths` positions of each batch after the call."""
    batch, heads, groups, size = len(lengths), 4, 2, 16
    wide = (heads + 2 * groups) * size
    cosine, sine = tables(32, size)
    given: dict[str, Any] = {
        "q": f32(batch, rows, wide if packed else heads * size),
        "k": None if packed else f32(batch, rows, groups * size),
        "v": None if packed else f32(batch, rows, groups * size),
        "pk": f32(batch, groups, held, size) if held else None,
        "pv": f32(batch, groups, held, size) if held else None,
        "n": np.array(lengths, np.int32) - 1, "t": np.array([total], np.int32), "c": cosine, "s": sine,
    }  # fmt: skip
    for name in ("pk", "pv"):  # what lies behind `total` stays as it is; ONNX Runtime's is 0 in another array
        if held:
            given[name][:, :, total:] = 0
    if not attrs.get("do_rotary"):
        given = {n: v for n, v in given.items() if n not in ("c", "s")}
    check("GroupQueryAttention", given, 3, weights=("t",), num_heads=heads, kv_num_heads=groups, **attrs)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}])
def test_grouped_attention(packed: bool, rotary: dict[str, int]) -> None:
    attention(3, 0, [3, 3], 3, packed, **rotary)
    attention(1, 5, [6, 6], 6, packed, **rotary)


@pytest.mark.parametrize("attrs", [{"softcap": 2.0}, {"local_window_size": 3}, {"scale": 0.2}], ids=str)
def test_forms_of_grouped_attention(attrs: dict[str, Any]) -> None:
    attention(5, 0, [5], 5, **attrs)
    attention(1, 6, [7], 7, **attrs)


def test_lengths_of_a_batch() -> None:
    """Rows of different lengths, a cache with room, several rows at once."""
    attention(1, 6, [7, 4], 7, do_rotary=1)
    attention(1, 9, [7, 4], 7, do_rotary=1)
    attention(3, 9, [8], 8, do_rotary=1)


@pytest.mark.parametrize("free", [False, True])
def test_a_cache_with_room_is_updated_where_it_lies(free: bool) -> None:
    """Steps one after another in one array, against ONNX Runtime on arrays of its own; a step back is a step, too."""
    heads, groups, size, room, batch = 4, 2, 16, 19, 2
    feeds: dict[str, Any] = {
        "q": f32(batch, 1, heads * size), "k": f32(batch, 1, groups * size), "v": f32(batch, 1, groups * size),
        "pk": f32(batch, groups, room, size), "pv": f32(batch, groups, room, size), "n": np.zeros(batch, np.int32),
    }  # fmt: skip
    inputs = {**feeds, "t": np.array([room], np.int32)}
    attrs = {"num_heads": heads, "kv_num_heads": groups}
    model = model_of("GroupQueryAttention", inputs, 3, 17, ("t",), attrs)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    if free:
        for info in model.graph.input:
            info.type.tensor_type.shape.dim[0].dim_param = "batch"
    compiled = polyc.compile_model(model, threads=1, symbolic=free or None)
    for lengths in ([4, 9], [5, 10], [6, 11], [3, 18]):
        feeds |= {n: f32(*feeds[n].shape) for n in ("q", "k", "v")} | {"n": np.array(lengths, np.int32)}
        want = session.run(None, feeds)
        got = compiled(feeds, out={"o1": feeds["pk"], "o2": feeds["pv"]})
        for k, expected in enumerate(want):
            np.testing.assert_allclose(got[f"o{k}"], expected, rtol=1e-4, atol=1e-5)
        assert got["o1"] is feeds["pk"] and got["o2"] is feeds["pv"]
    assert not [n for n in compiled.report().notes if "copied" in n]


def masked_attention(heads: int, groups: int, size: int, after: str) -> Any:
    """`GroupQueryAttention` as exporters write it: a mask has as many columns as positions are in use. `after` is the
    length of the caches that it makes: `total`, or `room` as the ones before."""
    nodes = [
        helper.make_node("Shape", ["mask"], ["columns"], start=1, end=2),
        helper.make_node("Cast", ["columns"], ["total"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "one"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "one"], ["before"]),
        helper.make_node("Cast", ["before"], ["n"], to=TensorProto.INT32),
        helper.make_node("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "n", "total"], ["y", "nk", "nv"],
                         domain="com.microsoft", num_heads=heads, kv_num_heads=groups),
    ]  # fmt: skip
    cache = ["batch", groups, "room", size]
    floats = {"q": ["batch", "rows", heads * size], "k": ["batch", "rows", groups * size]}
    floats |= {"v": floats["k"], "pk": cache, "pv": cache}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in floats.items()]
    inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "total"]))
    results = {"y": floats["q"], "nk": ["batch", groups, after, size], "nv": ["batch", groups, after, size]}
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in results.items()]
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "g", inputs, outputs, [one])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def test_of_a_cache_with_room_what_is_in_use_is_read_and_written() -> None:
    """Behind the mask's columns the cache stays as it is, also where it is no number."""
    heads, groups, size, room, batch = 4, 2, 16, 40, 2
    model = masked_attention(heads, groups, size, "room")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = polyc.compile_model(model, threads=1, symbolic=True)
    feeds: dict[str, Any] = {n: np.full((batch, groups, room, size), np.nan, np.float32) for n in ("pk", "pv")}
    lengths = np.zeros(batch, np.int64)
    for rows in ([3, 3], [1, 1], [1, 0], [1, 0], [1, 1]):
        count = max(rows)
        before, lengths = lengths, lengths + rows
        total = int(lengths.max())
        feeds |= {"q": f32(batch, count, heads * size), "k": f32(batch, count, groups * size)}
        feeds |= {"v": f32(*feeds["k"].shape), "mask": (np.arange(total) < lengths[:, None]).astype(np.int64)}
        given = {**feeds, **{n: np.nan_to_num(feeds[n]) for n in ("pk", "pv")}}
        want = session.run(None, given)
        got = compiled(feeds, out={"nk": feeds["pk"], "nv": feeds["pv"]})
        np.testing.assert_allclose(got["y"], want[0], rtol=1e-4, atol=1e-5, err_msg=f"{before} + {rows}")
        for name, expected in zip(("nk", "nv"), want[1:], strict=True):
            np.testing.assert_allclose(got[name][:, :, :total], expected[:, :, :total], rtol=1e-6)
            assert np.isnan(got[name][:, :, total:]).all()
    assert not [n for n in compiled.report().notes if "copied" in n]


def test_a_cache_that_grows_is_as_long_as_its_mask() -> None:
    """Past, rows and mask of free sizes: the names of the caches' sizes say that one is longer than the other."""
    heads, groups, size = 4, 2, 16
    model = masked_attention(heads, groups, size, "total")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compiled = polyc.compile_model(model, threads=1, symbolic=True)
    for batch, past, rows in ((1, 3, 2), (2, 5, 1), (1, 6, 4)):
        feeds = {"q": f32(batch, rows, heads * size), "mask": np.ones((batch, past + rows), np.int64)}
        feeds |= {n: f32(batch, rows, groups * size) for n in ("k", "v")}
        feeds |= {n: f32(batch, groups, past, size) for n in ("pk", "pv")}
        got, want = compiled(feeds), session.run(None, feeds)
        for name, expected in zip(("y", "nk", "nv"), want, strict=True):
            np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5, err_msg=f"{past} + {rows}")
