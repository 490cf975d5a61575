"""Regions at new places, and inputs that move: the same results, and what ran before runs again where it may."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import polyc
from polyc.graph_driver.fusion.joined import text_of
from polyc.graph_driver.incremental.kernels import Parts, Piece
from polyc.graph_driver.incremental.streams import Shift, shift_of
from tests.incremental.test_incremental import equal, images
from tests.slices.test_why import small_network


def audio(n: int, layers: int, padded: bool, stride: int = 1) -> onnx.ModelProto:
    """Windows of a signal: convolutions of 5, the second with a stride, a residual sum, and their mean."""
    rng = np.random.default_rng(n)
    nodes, weights, at, before = [], [], "x", 2
    for k in range(layers):
        w, b = rng.standard_normal((4, before, 5)) / 3, rng.standard_normal(4)
        weights += [numpy_helper.from_array(v.astype("f"), f"{a}{k}") for a, v in (("w", w), ("b", b))]
        attrs = {"pads": [2, 2] if padded else [0, 0], "strides": [stride if k == 1 else 1]}
        nodes.append(helper.make_node("Conv", [at, f"w{k}", f"b{k}"], [f"c{k}"], **attrs))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"]))
        at, before = f"r{k}", 4
        if padded and k == 2:
            nodes.append(helper.make_node("Add", ["r1", "r2"], ["s"]))
            at = "s"
    nodes.append(helper.make_node("GlobalAveragePool", [at], ["g"]))
    ends = [
        helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", [1, 2, n]), (at, None), ("g", None))
    ]
    graph = helper.make_graph(nodes, "audio", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def moved(x: np.ndarray, axis: int, by: int, rng: np.random.Generator) -> np.ndarray:
    """`new[j] = x[j + by]` along an axis, and random numbers where there is no such element."""
    new, n = rng.standard_normal(x.shape).astype(x.dtype), x.shape[axis]
    here, there = (slice(0, n - by), slice(by, n)) if by > 0 else (slice(-by, n), slice(0, n + by))
    before = (slice(None),) * axis
    new[(*before, here)] = x[(*before, there)]
    return new


def pair(model: onnx.ModelProto) -> tuple[Any, Any]:
    """A model that is run whole, and one that is updated."""
    return polyc.compile_model(model, reproducible=True, threads=1), polyc.incremental(model, threads=1)


# ---- places --------------------------------------------------------------------------------------


def test_a_new_place_asks_for_no_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, kept = pair(images(24, 2, 2, strided=False))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 24, 24)).astype("f")
    kept.run({"x": x})
    kept.update({"x[:, :, 8:12, 9:12]": x[:, :, 8:12, 9:12] + 1})

    def asked(*_: object) -> None:
        raise AssertionError("the piece was derived anew")

    with monkeypatch.context() as patched:
        patched.setattr(Parts, "_piece", asked)
        x[:, :, 8:12, 9:12] += 1
        for top, left in ((3, 14), (15, 4), (11, 10)):
            x[:, :, top : top + 4, left : left + 3] = rng.standard_normal((1, 3, 4, 3))
            done = kept.update(
                {f"x[:, :, {top}:{top + 4}, {left}:{left + 3}]": x[:, :, top : top + 4, left : left + 3]}
            )
            assert done.regions["r1"][2:] == ((top - 2, top + 6), (left - 2, left + 5))
            assert equal(kept.outputs, whole({"x": x}))
        with pytest.raises(AssertionError):  # its windows reach into the padding: something else runs
            kept.update({"x[:, :, 0:4, 9:12]": x[:, :, 0:4, 9:12] + 1})


def differences(parts: Parts, pick: random.Random, sizes: int) -> tuple[int, int]:
    """Regions of a kernel that were moved from other places, of all: each beside what is derived for it."""
    parts._compiled = lambda scop: text_of(scop)[1]  # type: ignore[assignment,method-assign,return-value]
    arrays = [a for a in parts.scop.args if parts.shapes[a]]
    widest = max(arrays, key=lambda a: len(parts.shapes[a]))
    moves = tries = 0
    for _ in range(sizes):
        changing = [widest] if pick.random() < 0.7 else pick.sample(arrays, min(len(arrays), 2))
        size = {a: [pick.choice([1, min(n, 3), n, pick.randint(1, n)]) for n in parts.shapes[a]] for a in changing}
        for _ in range(6):
            at = {a: [pick.randint(0, n - e) for e, n in zip(size[a], parts.shapes[a], strict=True)] for a in changing}
            region = {a: tuple((b, b + e) for b, e in zip(at[a], size[a], strict=True)) for a in changing}
            tries += 1
            got = parts._elsewhere(region)
            if got is None:
                parts.after(region)
                continue
            moves += 1
            known, parts._places = parts._places, {}
            want = parts._piece(region)
            parts._places = known
            assert isinstance(want, Piece)
            assert (want.kernel, want.reads, want.makes, want.instances) == (
                got.kernel, got.reads, got.makes, got.instances,
            ), (parts.group.label, region)  # fmt: skip
    return moves, tries


@pytest.mark.parametrize("seed", [0, 5])
def test_what_is_moved_is_what_is_derived(seed: int) -> None:
    pick = random.Random(seed)
    for model in (images(14, 2, 3, strided=True), audio(21, 2, padded=bool(seed), stride=2)):
        counts = [differences(p, pick, 2) for p in polyc.incremental(model, threads=1).parts]
        assert sum(m for m, _ in counts) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_what_is_moved_is_what_is_derived_in_random_networks(seed: int) -> None:
    pick = random.Random(seed)
    for p in polyc.incremental(small_network(seed), threads=1).parts:
        differences(p, pick, 4)


def test_one_more_token() -> None:
    """Positions behind a token see it (a causal window, then each token by itself), those before it do not."""
    rng = np.random.default_rng(4)
    weights = [
        numpy_helper.from_array(rng.standard_normal(s).astype("f"), n) for n, s in (("v", (6, 4, 3)), ("w", (6, 5)))
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["t", "v"], ["c"], pads=[2, 0]),
        helper.make_node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 16, 4]), ("y", [1, 16, 5]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    whole, kept = pair(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    x = np.zeros((1, 16, 4), "f")
    kept.run({"x": x})
    for at in range(16):
        x[0, at] = rng.standard_normal(4)
        before = kept.outputs["y"].copy()
        done = kept.update({f"x[0, {at}]": x[0, at]})
        assert equal(kept.outputs, whole({"x": x}))
        seen = (at, min(at + 3, 16))
        assert done.regions["y"][1] == seen and done.share <= 3.2 / 16
        outside = [k for k in range(16) if not seen[0] <= k < seen[1]]
        assert np.array_equal(before[:, outside], kept.outputs["y"][:, outside])


# ---- streams -------------------------------------------------------------------------------------


def test_shifts_are_found() -> None:
    rng = np.random.default_rng(0)
    old = rng.integers(0, 1 << 30, (3, 5, 7)).astype("u4")
    for axis, by in ((0, 1), (1, -2), (2, 6), (2, -1)):
        new = moved(old, axis, by, rng)
        found = shift_of(old, new)
        assert found is not None and found.by == tuple(by if d == axis else 0 for d in range(3))
        again = old.copy()
        found.move(again)
        for region in found.fresh:
            where = tuple(slice(*side) for side in region)
            again[where] = new[where]
        assert np.array_equal(again, new)
    assert shift_of(old, rng.integers(0, 1 << 30, (3, 5, 7)).astype("u4")) is None
    assert shift_of(np.zeros((4, 4), "u4"), np.arange(16, dtype="u4").reshape(4, 4)) is None


def test_shifts_under_another_shape() -> None:
    rows = Shift((0, 2, 0), (((0, 3), (4, 6), (0, 5)),))
    assert rows.under((3, 6, 5), (3, 30)) == Shift((0, 10), (((0, 3), (20, 30)),))
    assert Shift((0, 10), (((0, 3), (20, 30)),)).under((3, 30), (3, 6, 5)) == rows
    assert rows.under((3, 6, 5), (1, 3, 6, 5, 1)) == Shift((0, 0, 2, 0, 0), (((0, 1), (0, 3), (4, 6), (0, 5), (0, 1)),))
    assert rows.under((3, 6, 5), (18, 5)) is None  # rows of three pictures one after the other
    assert Shift((0, 3), (((0, 3), (27, 30)),)).under((3, 30), (3, 6, 5)) is None


@pytest.mark.parametrize("padded", [False, True])
def test_a_stream_computes_its_new_end(padded: bool) -> None:
    n = 61
    whole, kept = pair(audio(n, 3, padded, stride=2))
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 2, n)).astype("f")
    kept.run({"x": x})
    last = "s" if padded else "r2"
    for by in (4, 4, -2, 3):
        x = moved(x, 2, by, rng)
        done = kept.update({"x": x})
        assert equal(kept.outputs, whole({"x": x}))
        assert done.moved["r0"] == (0, 0, by)
        if by % 2:  # the stride of the second layer does not divide it
            assert last not in done.moved
            continue
        assert done.moved[last] == (0, 0, by // 2)
        if not padded and by > 0:  # the new elements alone, layer by layer
            ends = {name: kept.graph.tensors[name].shape[-1] for name in ("r0", "r1", "r2")}
            for name, new in (("r0", by), ("r1", by // 2), ("r2", by // 2)):
                assert done.regions[name][-1] == (ends[name] - new, ends[name])
    x[0, 1, 30] += 1  # a patch afterwards
    assert not kept.update({"x": x}).moved
    assert equal(kept.outputs, whole({"x": x}))


def test_pictures_that_scroll() -> None:
    """A kernel of 1 x 1 sees all pixels in one dimension: rows move in it, columns do not."""
    rng = np.random.default_rng(2)
    weights = [("v", (3, 3, 3, 3)), ("w", (4, 3, 1, 1))]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["c"], pads=[1] * 4),
        helper.make_node("Conv", ["c", "w"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", 1, [1, 3, 12, 10]),
        helper.make_tensor_value_info("y", 1, [1, 4, 12, 10]),
    ]
    made = [numpy_helper.from_array(rng.standard_normal(s).astype("f"), n) for n, s in weights]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], made)
    whole, kept = pair(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    x = rng.standard_normal((1, 3, 12, 10)).astype("f")
    kept.run({"x": x})
    for axis, by in ((2, 3), (2, -1), (3, 2)):
        x = moved(x, axis, by, rng)
        done = kept.update({"x": x})
        assert equal(kept.outputs, whole({"x": x}))
        assert ("y" in done.moved) == (axis == 2)


def test_what_does_not_move_along_is_made_anew() -> None:
    """A constant that is added by place; a second input that changes; a sum that runs over the axis."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[8, 3] x, float[8, 3] z) =>
    (float[8, 3] y, float[8, 3] s)
    <float[8, 1] p = {1, 2, 3, 4, 5, 6, 7, 8}> { a = Mul(x, z) y = Add(a, p) s = CumSum(x, axis) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "axis"))
    whole, kept = pair(model)
    rng = np.random.default_rng(3)
    x, z = (rng.standard_normal((8, 3)).astype("f") for _ in range(2))
    kept.run({"x": x, "z": z})
    x = moved(x, 0, 1, rng)
    kept.update({"x": x})
    assert equal(kept.outputs, whole({"x": x, "z": z}))
    x, z = moved(x, 0, 2, rng), moved(z, 0, 2, rng)
    kept.update({"x": x, "z": z})
    assert equal(kept.outputs, whole({"x": x, "z": z}))
    x, z = moved(x, 0, 2, rng), moved(z, 0, 1, rng)
    kept.update({"x": x, "z[2]": z[2]})
    z = np.concatenate([kept._state["z"][:2], z[2:3], kept._state["z"][3:]])
    assert equal(kept.outputs, whole({"x": x, "z": z}))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_networks_that_stream(seed: int) -> None:
    whole, kept = pair(small_network(seed))
    rng = np.random.default_rng(seed)
    shape = kept.graph.tensors["x"].shape
    x = rng.standard_normal(shape).astype("f")
    kept.run({"x": x})
    for _ in range(5):
        axis = int(rng.choice([d for d, n in enumerate(shape) if n > 1]))
        by = int(rng.integers(1, shape[axis])) * int(rng.choice([-1, 1]))
        x = moved(x, axis, by, rng)
        kept.update({"x": x})
        assert equal(kept.outputs, whole({"x": x}))
