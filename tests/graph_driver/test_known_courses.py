"""Loops of which the file tells more than ONNX's inference sees: weights that are carried unchanged, conditions that
count. They are compiled, unrolled or with one body, and what follows them is compiled, too."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import polyc
from polyc.graph_driver.execution.control import ControlNode
from polyc.graph_driver.importing import known_courses, unrolling

STEPS, WIDTH = 6, 3


def recurrent(steps: int, counted: str = "Less(after, total)") -> onnx.ModelProto:
    """As TensorFlow writes a recurrent layer: the weight and the number of steps are states that stay, the condition
    counts, and all rows are transposed behind the loop."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[1, {WIDTH}, {STEPS}] x) => (float[1, {WIDTH}] last, float[1, {WIDTH}, k] y, int64 n) {{
        start = Constant <value = int64 {{0}}> ()
        steps = Constant <value = int64 {{{steps}}}> ()
        sequence = Transpose <perm = [2, 0, 1]> (x)
        zero = Constant <value = float[1, 3] {{0.0, 0.0, 0.0}}> ()
        first = Less(start, steps)
        n, last, same, count, rows = Loop ("", first, start, zero, w, steps) <
            body = b (int64 i, bool going, int64 k, float[1, 3] s, float[3, 3] u, int64 total)
                => (bool more, int64 after, float[1, 3] t, float[3, 3] v, int64 total, float[1, 3] row) {{
                element = Gather <axis = 0> (sequence, k)
                one = Constant <value = int64 {{1}}> ()
                p = MatMul (s, u)
                q = Add (p, element)
                t = Tanh (q)
                row = Identity (t)
                v = Identity (u)
                after = Add (k, one)
                more = {counted}
            }}
        >
        z = Transpose <perm = [1, 2, 0]> (rows)
        y = Add (z, z)
    }}"""
    made = onnx.parser.parse_model(text)
    weight = np.random.default_rng(5).standard_normal((WIDTH, WIDTH), np.float32)
    made.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return made


@pytest.mark.parametrize("steps", [0, 1, STEPS])
@pytest.mark.parametrize("quick", [0, unrolling.MAX_QUICK])
def test_a_loop_that_counts_in_its_condition(steps: int, quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrolling, "MAX_QUICK", quick)
    proto = recurrent(steps)
    model = polyc.compile_model(proto, threads=1)
    x = np.random.default_rng(steps).standard_normal((1, WIDTH, STEPS), np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    want = dict(zip(("last", "y", "n"), session.run(None, {"x": x})))
    for run in (model, model.eager):
        for name, result in run({"x": x}).items():
            assert result.shape == want[name].shape
            np.testing.assert_allclose(result, want[name], rtol=1e-5, atol=1e-6)
    assert not model.report().host, model.report().host
    assert any(isinstance(node, ControlNode) for node in model.hosts) == (quick == 0 or steps == 0)


def test_states_that_stay_leave_the_loop() -> None:
    loop = next(n for n in recurrent(STEPS).graph.node if n.op_type == "Loop")
    short, same = known_courses.without_kept_states(loop, "loop", lambda _: True)
    assert list(short.input) == ["", "first", "start", "zero"] and list(short.output) == ["n", "last", "rows"]
    assert same == {"same": "w", "count": "steps"}
    assert known_courses.without_kept_states(loop, "loop", lambda name: name != "w")[1] == {"count": "steps"}


@pytest.mark.parametrize(
    ("condition", "trips"),
    [("Less(after, total)", STEPS), ("Not(going)", 1), ("Identity(going)", None), ("Less(after, start)", 1)],
)
def test_trips(condition: str, trips: int | None) -> None:
    loop = next(n for n in recurrent(STEPS, condition).graph.node if n.op_type == "Loop")
    known = {"first": np.array(True), "start": np.array(0), "steps": np.array(STEPS)}
    assert known_courses.trips(loop, "loop", known.get, {"": 18}) == trips
    assert known_courses.trips(loop, "loop", {"first": np.array(False)}.get, {"": 18}) == 0


def test_a_condition_that_reads_data_has_no_known_trips() -> None:
    loop = next(n for n in recurrent(STEPS).graph.node if n.op_type == "Loop")
    known = {"first": np.array(True), "start": np.array(0)}  # not the number of steps
    assert known_courses.trips(loop, "loop", known.get, {"": 18}) is None


@pytest.mark.parametrize("condition", ["Identity(going)", "Constant <value = bool {1}> ()"])
def test_a_limit_says_how_often_where_the_condition_does_not(condition: str) -> None:
    loop = next(n for n in recurrent(STEPS, condition).graph.node if n.op_type == "Loop")
    loop.input[0] = "limit"
    known = {"first": np.array(True), "limit": np.array(1 << 40)}
    assert known_courses.trips(loop, "loop", known.get, {"": 18}) == 1 << 40


def test_a_state_whose_name_means_something_else_inside_stays() -> None:
    loop = next(n for n in recurrent(STEPS).graph.node if n.op_type == "Loop")
    body = next(a.g for a in loop.attribute if a.name == "body")
    element = next(n for n in body.node if n.op_type == "Gather")
    reader = next(n for n in body.node if "element" in n.input)
    element.output[0] = "w"
    reader.input[list(reader.input).index("element")] = "w"
    _, same = known_courses.without_kept_states(loop, "loop", lambda _: True)
    assert same == {"count": "steps"}
