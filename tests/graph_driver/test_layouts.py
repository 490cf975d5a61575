"""Layouts of images between kernels: outputs as before, as few conversions as possible, padding counted."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tiny_models import model_of

import polyc
from polyc.emit import targets
from polyc.graph_driver import cli
from polyc.graph_driver.choosing.solve import Option, Problem, Task, brute_force, solve
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.fusion import groups
from polyc.graph_driver.fusion.machine import for_cpu
from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.layouts import choose
from polyc.graph_driver.layouts.choose import choose_formats
from polyc.graph_driver.layouts.formats import CHANNELS_LAST, GIVEN, blocked
from polyc.graph_driver.layouts.names import LAYOUTS
from polyc.graph_driver.layouts.offers import Offers
from polyc.graph_driver.operators import lookup
from polyc.graph_driver.passes import manager
from polyc.poly.target import Target

BLOCK = blocked(targets.host(), 32).block


def conv(name: str, x: str, y: str, w: str, kernel: int = 1, group: int = 1, stride: int = 1) -> onnx.NodeProto:
    return helper.make_node("Conv", [x, w], [y], name, pads=[kernel // 2] * 4, strides=[stride] * 2, group=group)


def random_net(rng: np.random.Generator, channels: int) -> onnx.ModelProto:
    """Convolutions of all kinds, pools, sums, squeeze and excite, in random order, over images of one size."""
    size = int(rng.integers(5, 10))
    weights: dict[str, np.ndarray] = {"w0": rng.standard_normal((channels, 3, 3, 3)).astype(np.float32) / 5}
    nodes = [conv("first", "x", "t0", "w0", 3)]
    made = ["t0"]
    for k in range(1, int(rng.integers(4, 7))):
        x, y = str(rng.choice(made[-2:])), f"t{k}"
        kind = str(rng.choice(["1x1", "depthwise", "3x3", "pool", "add", "excite"]))
        if kind in ("1x1", "3x3", "depthwise"):
            n, group = (3, channels) if kind == "depthwise" else (int(kind[0]), 1)
            scale = 1 / np.sqrt(n * n * channels // group)
            w = rng.standard_normal((channels, channels // group, n, n)) * scale
            weights[f"w{k}"] = w.astype(np.float32)
            nodes += [conv(f"c{k}", x, f"c{k}", f"w{k}", n, group), helper.make_node("Relu", [f"c{k}"], [y])]
        elif kind == "pool":
            nodes.append(helper.make_node("MaxPool", [x], [y], kernel_shape=[3, 3], pads=[1] * 4))
        elif kind == "add":
            nodes.append(helper.make_node("Add", [x, str(rng.choice(made))], [y]))
        else:
            nodes.append(helper.make_node("GlobalAveragePool", [x], [f"g{k}"]))
            nodes.append(helper.make_node("Sigmoid", [f"g{k}"], [f"s{k}"]))
            nodes.append(helper.make_node("Mul", [x, f"s{k}"], [y]))
        made.append(y)
    nodes.append(helper.make_node("GlobalAveragePool", [made[-1]], ["y"]))
    return model_of(nodes, {"x": [int(rng.integers(1, 3)), 3, size, size]}, {"y": None, made[-1]: None}, weights)


@pytest.mark.parametrize("channels", [2 * BLOCK, BLOCK + 3])
@pytest.mark.parametrize("layouts", LAYOUTS)
def test_outputs_are_those_of_the_reference(layouts: str, channels: int) -> None:
    rng = np.random.default_rng()
    model = random_net(rng, channels)
    x = rng.standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]).astype(np.float32)
    compiled = compile_model(model, threads=1, layouts=layouts)
    for name, want in zip(compiled.plan.outputs, ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(compiled({"x": x})[name], want, rtol=1e-4, atol=1e-4)
    assert not compiled.plan.host_steps


def block_net(channels: int = BLOCK + 3) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """1x1, depthwise and 1x1 convolutions whose last block of channels is not full."""
    rng = np.random.default_rng(1)
    weights = {
        "a": rng.standard_normal((channels, 5, 1, 1)).astype(np.float32),
        "b": rng.standard_normal((channels, 1, 3, 3)).astype(np.float32),
        "c": rng.standard_normal((6, channels, 1, 1)).astype(np.float32),
    }
    nodes = [conv("one", "x", "s", "a"), conv("two", "s", "t", "b", 3, channels), conv("three", "t", "y", "c")]
    return model_of(nodes, {"x": [1, 5, 9, 7]}, {"y": None}, weights), {
        "x": rng.standard_normal((1, 5, 9, 7), np.float32)
    }


def test_padding_is_counted_and_tensors_are_seen_as_the_model_has_them(tmp_path: Path) -> None:
    model, feeds = block_net()
    plain, stored = (compile_model(model, threads=1, layouts=n) for n in ("as_given", "blocked"))
    for name in ("s", "t"):
        slot = stored.plan.slots[name]
        assert slot.shape == (1, BLOCK + 3, 9, 7) and slot.layout is not None
        assert slot.nbytes == 2 * BLOCK * 9 * 7 * 4 > plain.plan.slots[name].nbytes
    seen = stored.inspect(feeds, ["s", "t"])
    for name, want in plain.inspect(feeds, ["s", "t"]).items():
        np.testing.assert_allclose(seen[name], want, rtol=1e-4, atol=1e-4)
    stored.save(tmp_path / "net")
    again = polyc.load(tmp_path / "net")
    assert np.array_equal(again(feeds)["y"], stored(feeds)["y"])
    assert {n for n, s in again.plan.slots.items() if s.layout is not None} == {"s", "t"}


def test_the_second_time_comes_from_the_cache() -> None:
    model, feeds = block_net(2 * BLOCK)
    first, second = (compile_model(model, threads=1, layouts="blocked") for _ in range(2))
    assert second.plan.slots == first.plan.slots and second.report().cache_hits
    assert np.array_equal(first(feeds)["y"], second(feeds)["y"])


def test_explain_says_which_tensors_are_stored_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(block_net()[0], tmp_path / "net.onnx")
    for layouts, shape in (("blocked", f"[1, 2, 9, 7, {BLOCK}]"), ("channels_last", f"[1, 9, 7, {BLOCK + 3}]")):
        assert cli.main(["explain", str(tmp_path / "net.onnx"), "--layouts", layouts, "--threads", "1"]) == 0
        assert f"layout    s: [1, {BLOCK + 3}, 9, 7] stored as {shape}" in capsys.readouterr().out


def chosen(model: onnx.ModelProto, layouts: str, **made: Any) -> choose.Chosen:
    graph = import_model(model)
    host: Target = targets.host()
    manager.run(graph, manager.select(exact=True), host)
    found = groups.form_groups(graph, groups.translate(graph, lookup), True, for_cpu(host))
    return choose_formats(graph, found, host, layouts)


def test_a_chain_of_convolutions_has_no_more_than_two_transforms() -> None:
    """Three that prefer channels last: what comes in and goes out is converted inside the first and last."""
    weights = {n: np.ones((8, 8, 1, 1), np.float32) for n in "abc"}
    nodes = [conv("one", "x", "s", "a"), conv("two", "s", "t", "b"), conv("three", "t", "y", "c")]
    model = model_of(nodes, {"x": [1, 8, 6, 6]}, {"y": None}, weights)
    found = chosen(model, "channels_last")
    assert {r.name for r in found.stored if r.name == r.source} == {"s", "t"}
    assert len(found.groups) == 3 and found.conversions <= 2


def random_preferences(rng: np.random.Generator) -> Problem:
    """A graph of up to ten nodes, each in one of two layouts, which it likes more or less."""
    kinds = [("f32", "NCHW"), ("f32", "NHWC")]
    tensors, tasks = ["x"], []
    for k in range(int(rng.integers(2, 11))):
        inputs = tuple(rng.choice(tensors, int(rng.integers(1, min(2, len(tensors)) + 1)), replace=False))
        own = kinds if rng.random() < 0.4 else [kinds[int(rng.integers(2))]]
        options = tuple(Option(f[1], (f,) * len(inputs), (f,), 0, float(rng.integers(9))) for f in own)
        tasks.append(Task(f"n{k}", inputs, (f"t{k}",), options))
        tensors.append(f"t{k}")
    return Problem(tuple(tasks), {"x": kinds[0]}, {tensors[-1]: kinds[0]}, {})


def test_as_few_conversions_as_trying_everything() -> None:
    rng = np.random.default_rng()
    for _ in range(60):
        problem = random_preferences(rng)
        assert solve(problem).score == brute_force(problem).score


def test_the_choice_is_the_best_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With random prices for what kernels offer: no other formats of all images together cost less."""
    rng = np.random.default_rng()
    monkeypatch.setattr(choose, "GAIN", 1.0)
    monkeypatch.setattr(choose, "MIXED", 1.0)
    for _ in range(3):
        prices: dict[Any, float] = {}

        def priced(self: Offers, scop: Any, constants: Any, prices: dict[Any, float] = prices) -> float:
            key = str(scop)
            return prices.setdefault(key, float(rng.integers(1, 50)))

        monkeypatch.setattr(Offers, "_cycles", priced)
        graph = import_model(random_net(rng, 2 * BLOCK))
        host = targets.host()
        manager.run(graph, manager.select(exact=True), host)
        found = groups.form_groups(graph, groups.translate(graph, lookup), True, for_cpu(host))
        free = [t for t in choose._free(graph, found, True)]
        offers = Offers(graph, host)
        best = float("inf")
        for picked in itertools.product([GIVEN, blocked(host, 32)], repeat=len(free)):
            formats = dict(zip(free, picked, strict=True))
            total = 0.0
            for g in found:
                own = {t: f for t, f in formats.items() if t in (*g.inputs, *g.outputs)}
                shapes = {(graph.tensors[t].shape, f) for t, f in own.items()}
                offer = offers.offer(g, own) if own and len(shapes) == len({s for s, _ in shapes}) else None
                total += (offer.cycles if offer else float("inf")) if own else 0.0
            best = min(best, total)
        done = choose_formats(graph, found, host, "auto")
        own = {r.name for r in done.stored if r.name == r.source}
        formats = {t: blocked(host, 32) if t in own else GIVEN for t in free}
        total = 0.0
        for g in found:
            mine = {t: f for t, f in formats.items() if t in (*g.inputs, *g.outputs)}
            offer = offers.offer(g, mine) if mine else None
            total += offer.cycles if offer else 0.0
        assert total == best


def test_tensors_that_others_see_stay() -> None:
    """Outputs of the model, what views show, what a concatenation is made of."""
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal((16, 16, 1, 1)).astype(np.float32) for n in "abc"}
    weights["shape"] = np.array([1, -1])
    nodes = [conv("one", "x", "s", "a"), conv("two", "s", "t", "b"), conv("three", "t", "u", "c"),
             helper.make_node("Reshape", ["u", "shape"], ["v"]), helper.make_node("Softmax", ["v"], ["y"])]  # fmt: skip
    model = model_of(nodes, {"x": [1, 16, 6, 6]}, {"y": None, "s": None}, weights)
    found = chosen(model, "channels_last")
    assert {r.name for r in found.stored if r.name == r.source} == {"t"}
    assert CHANNELS_LAST.block == 0 and not found.groups[0].inplace


def test_layouts_have_names() -> None:
    with pytest.raises(polyc.PolycError, match="there are no layouts 'nhwc'; choices are auto"):
        compile_model(block_net()[0], layouts="nhwc")
