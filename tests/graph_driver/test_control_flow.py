"""Control flow whose course only a run can tell: compiled bodies against the reference, on fresh inputs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper as h
from onnx.reference import ReferenceEvaluator

import polyc
from polyc.graph_driver.execution.control import ControlNode
from polyc.graph_driver.importing import unrolling
from polyc.poly.errors import BuildError

F, I, B = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def value(name: str, kind: int, *shape: int) -> onnx.ValueInfoProto:
    return h.make_tensor_value_info(name, kind, shape)


def model(text: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    onnx.checker.check_model(made)
    return made


BRANCHES = model("""
g (float[4, 6] x, float[6, 3] w, bool c) => (float[4, 3] y, float[4, 3] z) {
    p = MatMul(x, w)
    y, q = If (c) <
        then_branch = t () => (float[4, 3] ty, float[4, 3] tz) { ty = Relu(p)  tz = Add(p, ty) },
        else_branch = e () => (float[4, 3] ey, float[4, 3] ez) { en = Neg(p)  ey = Exp(en)  ez = MatMul(x, w) }
    >
    z = Add(q, y)
}
""")

COUNTED = model("""
g (int64 n, float[5] x, float[5] step) => (float[5] last, float[k, 5] all) {
    c = Constant <value = bool {1}> ()
    last, all = Loop (n, c, x) <
        body = b (int64 i, bool going, float[5] s) => (bool out, float[5] t, float[5] row) {
            out = Identity(going)
            f = Cast <to = 1> (i)
            scaled = Mul(step, f)
            t = Add(s, scaled)
            row = Mul(t, t)
        }
    >
}
""")

UNTIL = model("""
g (float[3] x, float limit) => (float[3] y, int64 rounds) {
    c = Constant <value = bool {1}> ()
    zero = Constant <value = int64 {0}> ()
    y, rounds = Loop ("", c, x, zero) <
        body = b (int64 i, bool going, float[3] s, int64 r) => (bool more, float[3] t, int64 u) {
            two = Constant <value = float {2.0}> ()
            one = Constant <value = int64 {1}> ()
            big = ReduceMax <keepdims = 0> (s)
            odd = Mod(r, one)
            nothing = Constant <value = int64 {0}> ()
            even = Equal(odd, nothing)
            t = If (even) <
                then_branch = th () => (float[3] a) { a = Mul(s, two) },
                else_branch = el () => (float[3] b2) { b2 = Add(s, two) }
            >
            u = Add(r, one)
            more = Less(big, limit)
        }
    >
}
""")


def check(proto: onnx.ModelProto, feeds: dict[str, np.ndarray], threads: int = 1) -> polyc.Model:
    compiled = polyc.compile_model(proto, threads=threads)
    assert not compiled.report().host, compiled.report().host
    assert any(isinstance(node, ControlNode) for node in compiled.hosts)
    agree(compiled, proto, feeds)
    return compiled


def agree(compiled: polyc.Model, proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    expected = dict(zip((o.name for o in proto.graph.output), ReferenceEvaluator(proto).run(None, feeds)))
    for run in (compiled, compiled.eager):
        for name, e in expected.items():
            got = run(feeds)[name]
            assert got.shape == np.shape(e) and got.dtype == np.asarray(e).dtype, name
            assert np.allclose(got, e, rtol=1e-5, atol=1e-5), name


def test_both_branches_of_an_if(tmp_path: Path) -> None:
    rng = np.random.default_rng()
    compiled = None
    for c in (True, False):
        feeds = {"x": rng.standard_normal((4, 6), np.float32), "w": rng.standard_normal((6, 3), np.float32),
                 "c": np.array(c)}  # fmt: skip
        compiled = check(BRANCHES, feeds) if compiled is None else compiled
        agree(compiled, BRANCHES, feeds)
    assert compiled is not None
    compiled.save(tmp_path / "m")
    agree(polyc.load(tmp_path / "m"), BRANCHES, feeds)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_counted_loop_with_rows(threads: int) -> None:
    rng = np.random.default_rng()
    compiled = None
    for n in (3, 0, 1, 17):
        feeds = {"n": np.array(n), "x": rng.standard_normal(5, np.float32), "step": rng.standard_normal(5, np.float32)}
        compiled = check(COUNTED, feeds, threads) if compiled is None else compiled
        if n:
            agree(compiled, COUNTED, feeds)
        else:
            made = compiled(feeds)
            assert made["all"].shape == (0, 5) and np.array_equal(made["last"], feeds["x"])


def test_a_loop_that_its_own_condition_ends() -> None:
    for limit in (100.0, 0.5, -1.0):
        feeds = {"x": np.abs(np.random.default_rng().standard_normal(3, np.float32)) + 1, "limit": np.float32(limit)}
        check(UNTIL, {n: np.asarray(v) for n, v in feeds.items()})


def test_a_scan_too_long_to_be_unrolled() -> None:
    body = h.make_graph(
        [h.make_node("Mul", ["s", "decay"], ["d"]), h.make_node("Add", ["d", "e"], ["t"]),
         h.make_node("Tanh", ["t"], ["row"])],
        "body", [value("s", F, 2), value("e", F, 2)], [value("t", F, 2), value("row", F, 2)],
    )  # fmt: skip
    node = h.make_node(
        "Scan", ["s0", "xs"], ["last", "rows"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    graph = h.make_graph([node], "g", [value("s0", F, 2), value("xs", F, 2, 3000), value("decay", F, 1)],
                         [value("last", F, 2), value("rows", F, 2, 3000)])  # fmt: skip
    proto = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8)
    rng = np.random.default_rng()
    s, xs, decay = rng.standard_normal(2, np.float32), rng.standard_normal((2, 3000), np.float32), np.float32([0.9])
    compiled = polyc.compile_model(proto)
    assert not compiled.report().host and any(isinstance(node, ControlNode) for node in compiled.hosts)
    made = compiled({"s0": s, "xs": xs, "decay": decay})
    rows = np.empty_like(xs)  # onnx.reference has no directions
    for k in reversed(range(3000)):
        s = s * decay + xs[:, k]
        rows[:, k] = np.tanh(s)
    assert np.allclose(made["last"], s, atol=1e-4) and np.allclose(made["rows"], rows, atol=1e-4)


def test_a_scan_over_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of a sequence of rank 1 have no axis left."""
    monkeypatch.setattr(unrolling, "MAX_UNROLLED", 0)
    body = h.make_graph([h.make_node("Add", ["s", "e"], ["t"]), h.make_node("Identity", ["t"], ["row"])], "body",
                        [value("s", F), value("e", F)], [value("t", F), value("row", F)])  # fmt: skip
    node = h.make_node("Scan", ["s0", "xs"], ["last", "rows"], body=body, num_scan_inputs=1)
    graph = h.make_graph([node], "g", [value("s0", F), value("xs", F, 5)], [value("last", F), value("rows", F, 5)])
    made = polyc.compile_model(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=8))(
        {"s0": np.float32(1), "xs": np.arange(5, dtype=np.float32)}
    )
    assert made["last"] == 11 and made["rows"].tolist() == [1, 2, 4, 7, 11]


def test_a_branch_that_does_not_fit_is_left_to_the_host() -> None:
    """The second branch multiplies by a matrix that these inputs do not fit."""
    proto = model("""
    g (float[4] x, bool c) => (float[a, b] y) {
        y = If (c) <
            then_branch = t () => (float[2, 2] ty) { s = Constant <value = int64[2] {2, 2}> ()  ty = Reshape(x, s) },
            else_branch = e () => (float[p, q] ey) {
                m = Constant <value = float[3, 1] {1, 2, 3}> ()
                ey = MatMul(x, m)
            }
        >
    }
    """)
    compiled = polyc.compile_model(proto)
    x = np.random.default_rng().standard_normal(4, np.float32)
    assert np.array_equal(compiled({"x": x, "c": np.array(True)})["y"], x.reshape(2, 2))
    with pytest.raises(polyc.PolycError, match="failed on the host"):
        compiled({"x": x, "c": np.array(False)})
    assert any("else_branch" in note for note in compiled.report().notes)


def test_branches_of_different_shapes() -> None:
    proto = model("""
    g (float[4] x, bool c) => (float[n] y) {
        y = If (c) <
            then_branch = t () => (float[4] ty) { ty = Relu(x) },
            else_branch = e () => (float[8] ey) { ey = Concat <axis = 0> (x, x) }
        >
    }
    """)
    compiled = polyc.compile_model(proto)
    assert not compiled.report().host
    for c in (True, False):
        agree(compiled, proto, {"x": np.random.default_rng().standard_normal(4, np.float32), "c": np.array(c)})


def test_a_body_of_another_model_is_refused(tmp_path: Path) -> None:
    feeds = {"x": np.ones((4, 6), np.float32), "w": np.ones((6, 3), np.float32), "c": np.array(True)}
    check(BRANCHES, feeds).save(tmp_path / "m")
    (tmp_path / "m" / "body_0_0").rename(tmp_path / "other")
    (tmp_path / "m" / "body_0_1").rename(tmp_path / "m" / "body_0_0")
    (tmp_path / "other").rename(tmp_path / "m" / "body_0_1")
    with pytest.raises(BuildError, match="belongs to another model"):
        polyc.load(tmp_path / "m")
