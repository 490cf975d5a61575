"""Sequences whose elements are known tensors leave nothing on the host; the others still work."""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import polyc

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'


def run(text: str, feeds: dict[str, np.ndarray]) -> polyc.Model:
    """Compile, compare every output with the reference, give the model."""
    proto = onnx.parser.parse_model(HEAD + text)
    model = polyc.compile_model(proto, threads=1)
    made = model(feeds)
    for o, expected in zip(proto.graph.output, ReferenceEvaluator(proto).run(None, feeds)):
        got = made[o.name]
        assert np.shape(got) == np.shape(expected) and np.allclose(got, expected, atol=1e-6), o.name
    return model


def feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng()
    return {n: rng.standard_normal((2, 3), np.float32) for n in ("a", "b", "c")}


def test_insert_erase_at_length_and_concatenation() -> None:
    model = run(
        """
        g (float[2, 3] a, float[2, 3] b, float[2, 3] c)
        => (float[6, 3] wide, float[2, 3, 3] deep, float[2, 3] last, int64 n) {
            first = Constant <value = int64 {0}> ()
            back = Constant <value = int64 {-1}> ()
            ra = Relu(a)
            s0 = SequenceConstruct(ra, b)
            s1 = SequenceInsert(s0, c, first)
            s2 = SequenceInsert(s1, a, back)
            s3 = SequenceErase(s2, back)
            wide = ConcatFromSequence <axis = 0> (s3)
            deep = ConcatFromSequence <axis = 1, new_axis = 1> (s3)
            last = SequenceAt(s2, back)
            n = SequenceLength(s2)
        }
        """,
        feeds(),
    )
    assert not model.plan.python_steps


def test_a_loop_that_collects_rows_is_unrolled() -> None:
    model = run(
        """
        g (float[2, 3] a, float[2, 3] b, float[2, 3] c) => (float[8, 3] rows) {
            trips = Constant <value = int64 {4}> ()
            go = Constant <value = bool {1}> ()
            none = SequenceEmpty ()
            all, last = Loop (trips, go, none, a) <
                body = body (int64 i, bool g0, seq(float[2, 3]) s, float[2, 3] x)
                => (bool g1, seq(float[2, 3]) t, float[2, 3] y) {
                    g1 = Identity(g0)
                    p = Mul(x, b)
                    y = Add(p, c)
                    t = SequenceInsert(s, y)
                }
            >
            rows = ConcatFromSequence <axis = 0> (all)
        }
        """,
        feeds(),
    )
    assert not model.plan.python_steps


def test_a_position_that_a_run_decides_stays_on_the_host() -> None:
    model = run(
        """
        g (float[2, 3] a, float[2, 3] b, float[2, 3] c, int64 k) => (float[2, 3] y) {
            s = SequenceConstruct(a, b, c)
            x = SequenceAt(s, k)
            y = Neg(x)
        }
        """,
        feeds() | {"k": np.array(1)},
    )
    assert any(operator == "SequenceAt" for operator, _, _ in model.report().host)


def test_a_node_without_inputs_passes_all_passes() -> None:
    """On the host a `SequenceEmpty` stays a node (passes once took every node to have a first input)."""
    run(
        """
        g (float[3] x, int64 n) => (float[k] y) {
            none = SequenceEmpty <dtype = 1> ()
            two = SequenceInsert (none, x)
            y = SequenceAt (two, n)
        }
        """,
        {"x": np.random.default_rng().standard_normal(3).astype(np.float32), "n": np.array(0)},
    )
