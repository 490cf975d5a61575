"""Results in place, and concatenations, splits and slices without copies: same values, less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from tiny_models import model_of

import polyc
from polyc.graph_driver.checking.check import compare, random_input
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.running.model import Model

rng = np.random.default_rng(8)


def node(op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, outputs[0], **attrs)


def checked(proto: onnx.ModelProto, threads: int = 1) -> Model:
    """Compiled, and compared with onnxruntime twice on poisoned memory, in both modes."""
    model = compile_model(proto, threads=threads)
    feeds = {n: random_input(n, d, s, 3) for n, (d, s) in model.inputs.items()}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = dict(zip(names, session.run(names, feeds), strict=True))
    for run in (model, model.eager, model):
        model.executor().arena[:] = 0xFF
        assert max(d.relative for d in compare(run(feeds), expected)) <= 2e-5
    return model


def residual() -> onnx.ModelProto:
    """Two convolutions with a sum: the sum may be written over the skipped connection."""
    weights = {f"w{k}": (0.3 * rng.standard_normal((8, 8, 3, 3))).astype(np.float32) for k in range(3)}
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        node("Conv", ["a", "w1"], ["b"], pads=[1, 1, 1, 1]),
        node("Add", ["b", "a"], ["c"]),
        node("Conv", ["c", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return model_of(nodes, {"x": [1, 8, 16, 20]}, {"y": [1, 8, 16, 20]}, weights)


def test_a_padded_image_may_be_overwritten_by_the_sum_that_needs_it() -> None:
    """The padding copies each element before the sum at that place, which depends on it, can be made."""
    model = checked(residual())
    assert [s.label for s in model.plan.steps] == ["Conv", "Conv+Add", "Conv"]
    assert model.plan.slots["c"].place == model.plan.slots["a"].place


def test_a_sum_is_written_over_an_operand_that_is_not_needed_any_more() -> None:
    weights = {f"w{k}": (0.3 * rng.standard_normal((8, 8, 1, 1))).astype(np.float32) for k in range(4)}
    nodes = [
        node("Conv", ["x", "w0"], ["a"]),
        node("Conv", ["a", "w1"], ["b"]),
        node("Conv", ["b", "w2"], ["c"]),
        node("Add", ["c", "a"], ["d"]),
        node("Conv", ["d", "w3"], ["y"]),
    ]
    model = checked(model_of(nodes, {"x": [1, 8, 16, 20]}, {"y": [1, 8, 16, 20]}, weights))
    slots = model.plan.slots
    assert slots["d"].place == slots["a"].place != slots["b"].place
    assert model.plan.peak == 2 * 8 * 16 * 20 * 4
    decisions = model.report().decisions
    assert any("is in place ('d' over 'a')" in d for d in decisions)
    (refused,) = [d for d in decisions if "'d' over 'b'" in d]  # the image of the last product
    assert "may be written while what lies there in 'b' is still to be read" in refused
    feeds = {n: random_input(n, d, s, 3) for n, (d, s) in model.inputs.items()}
    found = model.inspect(feeds, ["a", "c", "d"])
    np.testing.assert_allclose(found["d"], found["a"] + found["c"], rtol=1e-5, atol=1e-5)


def test_concatenation_split_and_slice_are_views(tmp_path: Any) -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Softmax", ["x"], ["b"], axis=-1),
        node("Concat", ["a", "b"], ["ab"], axis=1),
        node("Softmax", ["ab"], ["c"], axis=-1),
        node("Concat", ["ab", "c"], ["abc"], axis=1),
        node("Split", ["abc"], ["p", "q"], axis=1, num_outputs=2),
        node("Slice", ["abc", "one", "five", "channels"], ["s"]),
        node("MatMul", ["p", "m"], ["y"]),
        node("MatMul", ["q", "m"], ["z"]),
        node("MatMul", ["s", "m"], ["w"]),
    ]
    weights = {"m": rng.standard_normal((16, 16)).astype(np.float32), "one": np.array([1]), "five": np.array([5]),
               "channels": np.array([1])}  # fmt: skip
    shapes = {"y": [1, 8, 4, 16], "z": [1, 8, 4, 16], "w": [1, 4, 4, 16]}
    model = checked(model_of(nodes, {"x": [1, 4, 4, 16]}, shapes, weights, opset=18))
    kinds = [s.label for s in model.plan.steps]
    assert not any(k in label for label in kinds for k in ("Concat", "Split", "Slice"))
    places = {n: model.plan.slots[n].place.offset - model.plan.slots["abc"].place.offset for n in "abcpqs"}
    part = 4 * 4 * 16 * 4
    assert places == {"a": 0, "b": part, "c": 2 * part, "p": 0, "q": 2 * part, "s": part // 4}
    model.save(tmp_path / "out")
    feeds = {"x": random_input("x", "f32", (1, 4, 4, 16), 3)}
    loaded = polyc.load(tmp_path / "out")
    assert all(np.array_equal(v, loaded(feeds)[n]) for n, v in model(feeds).items())


def test_what_must_be_copied_is(tmp_path: Any) -> None:
    nodes = [
        node("Concat", ["x", "x"], ["twice"], axis=1),  # an input, and one operand two times
        node("Relu", ["twice"], ["r"]),
        node("Concat", ["r", "r"], ["y"], axis=0),  # returned to the caller
        node("Concat", ["r", "twice"], ["inner"], axis=3),  # no run of bytes
        node("Softmax", ["inner"], ["z"], axis=-1),
    ]
    shapes = {"y": [2, 8, 4, 16], "z": [1, 8, 4, 32]}
    model = checked(model_of(nodes, {"x": [1, 4, 4, 16]}, shapes, {}))
    assert sum("Concat" in s.label for s in model.plan.steps) == 3


@pytest.mark.parametrize("limit", [1000])
def test_a_limit_below_the_plan_names_what_is_alive(limit: int) -> None:
    from polyc.poly.errors import ModelError

    with pytest.raises(ModelError, match=r"more than the memory limit of 1.00 kB; alive at step \d+ .*'a' "):
        compile_model(residual(), threads=1, memory_limit=limit)


def test_the_checker_sees_a_value_that_was_overwritten() -> None:
    from dataclasses import replace

    from polyc.graph_driver.memory import PlanError
    from polyc.graph_driver.planning.verify_plan import check_plan

    plan = checked(residual()).plan
    symbols = {s.symbol for s in plan.steps}
    check_plan(plan, symbols, 0)
    first, second, third = plan.steps
    late = replace(third, args=tuple("a" if n == "c" else n for n in third.args))  # 'c' lies over 'a' by then
    with pytest.raises(PlanError, match="reads 'a', whose memory holds 'c' by then"):
        check_plan(replace(plan, steps=(first, second, late)), symbols, 0)
    with pytest.raises(PlanError, match="step 0 reads 'a' before all of it is written"):
        check_plan(replace(plan, steps=(second, first, third)), symbols, 0)
