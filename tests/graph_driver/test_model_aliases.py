"""Arrays of a model's caller that share memory: results are those of a run on separate copies, or one clear line.

Every argument of a run, inputs and arrays of `out=`, is laid at a random place of one buffer: they overlap in part, as
a whole or not at all; inputs may also be turned round, broadcast or transposed views.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lent_arrays import Lends
from onnx import TensorProto, helper
from tiny_models import model_of, network, with_host_steps

import polyc
from polyc.graph_driver.execution.aliasing import Extents, check_apart
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ArgumentError

N = 37  # rows and columns that no vector divides: the end of a row is computed twice


def sgd() -> onnx.ModelProto:
    """`wn = w - rate * (g + decay * w)` and the norm of the step."""
    weights = {"rate": np.array(0.1, np.float32), "decay": np.array(0.01, np.float32)}
    nodes = [
        helper.make_node("Mul", ["w", "decay"], ["d"]),
        helper.make_node("Add", ["g", "d"], ["s"]),
        helper.make_node("Mul", ["s", "rate"], ["step"]),
        helper.make_node("Sub", ["w", "step"], ["wn"]),
        helper.make_node("ReduceSumSquare", ["s"], ["norm"], axes=[1], keepdims=1),
    ]
    return model_of(nodes, {"w": [N, N], "g": [N, N]}, {"wn": [N, N], "norm": [N, 1]}, weights)


def products(rows: int | str = N) -> onnx.ModelProto:
    """Several steps: an exponential, a product, and a product of its result, which is an output too."""
    rng = np.random.default_rng(5)
    weights = {"m": (rng.standard_normal((N, N)) / 6).astype(np.float32)}
    nodes = [
        helper.make_node("Tanh", ["a"], ["t"]),
        helper.make_node("MatMul", ["t", "m"], ["p"]),
        helper.make_node("MatMul", ["p", "b"], ["q"]),
        helper.make_node("Softmax", ["q"], ["r"], axis=0),
        helper.make_node("Identity", ["a"], ["same"]),
    ]
    return model_of(nodes, {"a": [rows, N], "b": [N, N]}, {"p": [rows, N], "r": [rows, N], "same": [rows, N]}, weights)


def exponential() -> onnx.ModelProto:
    return model_of([helper.make_node("Exp", ["x"], ["y"])], {"x": [1000]}, {"y": [1000]}, {})


def hosted() -> onnx.ModelProto:
    """Host steps that hand out views of an input and of the arena, which later steps use again."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["y"]),
        helper.make_node("Reshape", ["x", "s"], ["z"]),
        helper.make_node("SequenceConstruct", ["y", "z"], ["both"]),
        helper.make_node("Softmax", ["r"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Softmax", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["e"]),
        helper.make_node("ConcatFromSequence", ["both"], ["yz"], axis=0),
    ]
    weights = {"w": np.eye(64, dtype=np.float32)}
    unknown: Any = [None, None]
    return model_of(nodes, {"x": [64, 64], "s": (TensorProto.INT64, [2])}, {"e": [64, 64], "y": unknown,
                    "z": unknown, "yz": unknown}, weights)  # fmt: skip


def accumulated() -> onnx.ModelProto:
    """Sums of the rows so far, by a loop over the rows: compiled for the sizes of each call."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["row"], axis=0),
            helper.make_node("Add", ["sum", "row"], ["total"]),
            helper.make_node("Identity", ["total"], ["kept"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (
            ("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("sum", TensorProto.FLOAT, [N]))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (
            ("on", TensorProto.BOOL, []), ("total", TensorProto.FLOAT, [N]), ("kept", TensorProto.FLOAT, [N]))],
    )  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["both"]),
        helper.make_node("Gather", ["both", "zero"], ["count"], axis=0),
        helper.make_node("Loop", ["count", "", "start"], ["sum", "sums"], body=body),
        helper.make_node("Tanh", ["sums"], ["t"]),
        helper.make_node("Add", ["t", "x"], ["y"]),
    ]
    shape = ["rows", N]
    return model_of(nodes, {"x": shape, "start": [N]}, {"sum": [N], "y": shape, "sums": shape}, {"zero": np.array(0)})


def squeezed() -> onnx.ModelProto:
    """`Squeeze` without axes: a guard excludes one row, which is compiled for when a call has it."""
    nodes = [
        helper.make_node("Squeeze", ["x"], ["s"]),
        helper.make_node("Exp", ["s"], ["e"]),
        helper.make_node("Softmax", ["x"], ["y"], axis=0),
        helper.make_node("Add", ["e", "w"], ["z"]),
    ]
    return model_of(nodes, {"x": ["rows", 1, N], "w": ["rows", N]}, {"y": ["rows", 1, N], "z": None}, {})


ROWS = (2, 3, N, 8)


def cached(heads: int | str = ROWS[1]) -> onnx.ModelProto:
    """Two caches that get new rows, at an odd place and at their end, what is read of them, and elements of a third."""
    weights = {"at": np.array([5, N - 2]), "places": np.array([[0, 2, 36], [1, 0, 0], [0, 2, 36]])}
    nodes = [
        helper.make_node("TensorScatter", ["keys", "key", "at"], ["more_keys"], axis=2),
        helper.make_node("TensorScatter", ["values", "value", "at"], ["more_values"], axis=2, mode="circular"),
        helper.make_node("Mul", ["more_keys", "more_values"], ["product"]),
        helper.make_node("Softmax", ["product"], ["read"], axis=2),
        helper.make_node("ScatterND", ["w", "places", "u"], ["wn"], reduction="add"),
    ]
    whole, new = [2, heads, *ROWS[2:]], [2, heads, 2, ROWS[3]]
    given = {"keys": whole, "values": whole, "key": new, "value": new, "w": [*ROWS], "u": [3, 8]}
    made = {"more_keys": whole, "more_values": whole, "read": whole, "wn": [*ROWS]}
    proto = model_of(nodes, given, made, weights)
    proto.opset_import[0].version = 24
    return proto


@cache
def compiled(name: str) -> Model:
    makers: dict[str, Callable[[], Model]] = {
        "sgd": lambda: polyc.compile_model(sgd(), threads=1),
        "exp": lambda: polyc.compile_model(exponential(), threads=1),
        "products": lambda: polyc.compile_model(products(), threads=1),
        "threads": lambda: polyc.compile_model(products(), threads=2),
        "tasks": lambda: polyc.compile_model(products(), threads=2, tasks=True),
        "c": lambda: polyc.compile_model(sgd(), target="c", threads=1),
        "network": lambda: polyc.compile_model(network(), threads=1, dims={"N": 1}),
        "host": lambda: polyc.compile_model(with_host_steps(), threads=1),
        "per call": lambda: polyc.compile_model(accumulated(), threads=1),
        "guarded": lambda: polyc.compile_model(squeezed(), threads=1),
        "cached": lambda: polyc.compile_model(cached(), threads=1),
        "cached by tasks": lambda: polyc.compile_model(cached(), threads=2, tasks=True),
        "cached at any size": lambda: polyc.compile_model(cached("heads"), threads=1, symbolic=True),
        "cached in C": lambda: polyc.compile_model(cached(), target="c", threads=1),
        "symbolic": lambda: polyc.compile_model(products("rows"), threads=1, symbolic=True),
    }
    return makers[name]()


@st.composite
def layouts(draw: st.DrawFn, sizes: dict[str, int]) -> dict[str, int]:
    """A place (in elements) in one buffer for every argument: random, or that of another, or near it."""
    places: dict[str, int] = {}
    total = sum(sizes.values())
    for name in sizes:
        near = draw(st.sampled_from([None, None, *places.values()]))
        if near is None:
            places[name] = draw(st.integers(0, total))
        else:
            places[name] = max(0, near + draw(st.sampled_from([0, 0, 0, 1, -1, 8, -8, 40, -40])))
    return places


SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def check(model: Model, shapes: dict[str, tuple[int, ...]], data: st.DataObject) -> None:
    """One run with overlapping arguments, against one on copies."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    plan = model.model_for({n: np.zeros(s, np.float32) for n, s in shapes.items()}).plan
    ins = {n: shapes[n] for n in plan.inputs}
    wanted = {n: shapes[n] for n in plan.outputs if n in shapes}
    chosen = data.draw(st.sets(st.sampled_from(sorted(wanted)), min_size=1))
    sizes = {f"in {n}": int(np.prod(s)) for n, s in ins.items()}
    sizes |= {f"out {n}": int(np.prod(wanted[n])) for n in sorted(chosen)}
    places = data.draw(layouts(sizes))
    buffer = rng.standard_normal(2 * sum(sizes.values()) + 200).astype(np.float32)

    def view(kind: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
        at = places[f"{kind} {name}"]
        return buffer[at : at + int(np.prod(shape))].reshape(shape)

    feeds = {}
    for n, s in ins.items():
        array = view("in", n, s)
        form = data.draw(st.sampled_from(["plain", "plain", "plain", "turned", "broadcast", "transposed"]))
        if form == "turned":
            array = array[::-1]
        elif form == "broadcast":
            array = np.broadcast_to(array[:1], s)
        elif form == "transposed" and len(s) == 2 and s[0] == s[1]:
            array = array.T
        feeds[n] = array
    out = {n: view("out", n, wanted[n]) for n in chosen}
    expected = model({n: x.copy() for n, x in feeds.items()})
    clash = any(np.may_share_memory(out[a], out[b]) for a in chosen for b in chosen if a != b)
    before = buffer.copy()
    try:
        got = model(feeds, out=out)
    except ArgumentError as error:
        assert clash and "share memory" in str(error) and "\n" not in str(error)
        np.testing.assert_array_equal(buffer, before)
        return
    assert not clash
    for n, value in expected.items():
        np.testing.assert_array_equal(got[n], value, err_msg=n)
        assert n not in chosen or got[n] is out[n]


SQUARE = {n: (N, N) for n in ("w", "g", "wn", "a", "b", "p", "r", "same")} | {"norm": (N, 1)}
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "exp": {"x": (1000,), "y": (1000,)},
    "network": {"x": (1, 3, 10, 12), "y": (1, 5)},
    "host": {"x": (4, 5), "y": (4, 5)},
}
CACHED = {n: ROWS for n in ("keys", "values", "w", "more_keys", "more_values", "read", "wn")} | {
    "key": (2, 3, 2, 8), "value": (2, 3, 2, 8), "u": (3, 8)
}  # fmt: skip
OF_CACHES = ("cached", "cached by tasks", "cached at any size", "cached in C")


@pytest.mark.parametrize("name", ["sgd", "exp", "products", "threads", "tasks", "c", "network", "host"])
@SLOW
@given(data=st.data())
def test_random_overlaps(name: str, data: st.DataObject) -> None:
    check(compiled(name), SHAPES.get(name, SQUARE), data)


@SLOW
@given(data=st.data())
def test_random_overlaps_at_sizes_of_a_run(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([3, 16, 37]))
    check(compiled("symbolic"), SQUARE | {n: (rows, N) for n in ("a", "p", "r", "same")}, data)


@SLOW
@given(data=st.data())
def test_random_overlaps_of_a_model_for_each_shape(data: st.DataObject) -> None:
    rows = data.draw(st.sampled_from([1, 3, 37]))
    shapes: dict[str, tuple[int, ...]] = {"x": (rows, N), "start": (N,), "sum": (N,), "y": (rows, N), "sums": (rows, N)}
    check(compiled("per call"), shapes, data)


@SLOW
@given(data=st.data())
def test_random_overlaps_at_sizes_that_a_guard_excludes(data: st.DataObject) -> None:
    """The model for all sizes and the specialised one in turns."""
    rows = data.draw(st.sampled_from([1, 1, 37]))
    z = (rows, N) if rows > 1 else (1, N)
    check(compiled("guarded"), {"x": (rows, 1, N), "w": (rows, N), "y": (rows, 1, N), "z": z}, data)
    assert rows > 1 or compiled("guarded").specialisations()


@pytest.mark.parametrize("name", OF_CACHES)
@SLOW
@given(data=st.data())
def test_random_overlaps_of_caches(name: str, data: st.DataObject) -> None:
    check(compiled(name), CACHED, data)


@pytest.mark.parametrize("name", OF_CACHES)
def test_caches_get_rows_where_they_lie(name: str) -> None:
    """No copy of an input is made, rows that stay are not written, and a bound run goes on from its last result."""
    model, rng = compiled.__wrapped__(name), np.random.default_rng()
    over = {"keys": "more_keys", "values": "more_values", "w": "wn"}
    feeds = {n: rng.standard_normal(CACHED[n]).astype(np.float32) for n in (*over, "key", "value", "u")}
    first = model({n: x.copy() for n, x in feeds.items()})
    bound = model.bind(feeds, {y: feeds[x] for x, y in over.items()})
    for got in (model(feeds, out={y: feeds[x] for x, y in over.items()}), bound(), bound()):
        assert all(got[y] is feeds[x] for x, y in over.items())
    for y in ("more_keys", "more_values", "read"):
        np.testing.assert_array_equal(got[y], first[y], err_msg=y)
    assert not [n for n in model.report().notes if "copied" in n]
    assert sum("in place" in str(d) for d in model.report().decisions) >= len(over)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("loaded") / "m"
    compiled("products").save(folder)
    return polyc.load(folder)


@SLOW
@given(data=st.data())
def test_random_overlaps_of_a_loaded_model(loaded: Model, data: st.DataObject) -> None:
    check(loaded, SQUARE, data)


def test_an_output_over_an_input_is_noted_once() -> None:
    model = polyc.compile_model(sgd(), threads=1)
    rng = np.random.default_rng()
    w, g = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    for _ in range(3):
        expected = model({"w": w.copy(), "g": g})["wn"]
        model({"w": w, "g": g}, out={"wn": w})
        np.testing.assert_array_equal(w, expected)
    said = [n for n in model.report().notes if "copied" in n]
    assert said == ["input 'w' is copied in runs that write output 'wn' over it"]


def test_an_input_that_is_read_early_is_not_copied() -> None:
    """All that reads `a` is done when `r` is written: the order of the steps is the proof. (`same` is not asked for
    by the plan here, it would read `a` last.)"""
    proto = products()
    del proto.graph.output[2]
    model = polyc.compile_model(proto, threads=1)
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    expected = model({"a": a.copy(), "b": b})["r"]
    model({"a": a, "b": b}, out={"r": a})
    np.testing.assert_array_equal(a, expected)
    assert not [n for n in model.report().notes if "copied" in n]


def test_the_same_array_as_two_inputs() -> None:
    model = compiled("sgd")
    w = np.random.default_rng().standard_normal((N, N)).astype(np.float32)
    expected = model({"w": w.copy(), "g": w.copy()})["wn"]
    np.testing.assert_array_equal(model({"w": w, "g": w})["wn"], expected)
    model({"w": w, "g": w}, out={"wn": w})
    np.testing.assert_array_equal(w, expected)


def test_arrays_that_cannot_be_written_are_refused_before_the_run() -> None:
    model = compiled("sgd")
    w, wn = np.zeros((N, N), np.float32), np.full((N, N), 7, np.float32)
    narrow = np.lib.stride_tricks.as_strided(np.zeros(N, np.float32), (N, N), (0, 4))
    wrong = {
        "contiguous": (wn[::-1], narrow, np.asfortranarray(wn)),
        "must be float32 of shape": (wn[:3], wn.astype(np.float64), [1.0]),
    }
    for words, arrays in wrong.items():
        for array in arrays:
            with pytest.raises(ArgumentError, match=words):
                model({"w": w, "g": w}, out={"norm": np.zeros((N, 1), np.float32), "wn": array})
    with pytest.raises(ArgumentError, match="'norm' and 'wn' share memory"):
        model({"w": w, "g": w}, out={"norm": wn.reshape(-1)[:N].reshape(N, 1), "wn": wn})
    with pytest.raises(ArgumentError, match="no output 'x'; it has 'wn', 'norm'"):
        model({"w": w, "g": w}, out={"x": wn})
    with pytest.raises(ArgumentError, match="out= is a dict of arrays by name"):
        model({"w": w, "g": w}, out=wn)
    assert (wn == 7).all()


def test_weights_are_not_written() -> None:
    model = compiled("products")
    memory = model.weights[: 4 * N * N].view(np.float32).reshape(N, N)
    x = np.zeros((N, N), np.float32)
    with pytest.raises(ArgumentError, match="'p' lies in the model's weights"):
        model({"a": x, "b": x}, out={"p": memory})


def test_results_of_the_host_have_memory_of_their_own() -> None:
    """They were views of the arena, which later steps and later runs write over."""
    model = polyc.compile_model(hosted(), threads=1)
    x, s = np.random.default_rng().standard_normal((64, 64)).astype(np.float32), np.array([32, 128])
    first = model({"x": x, "s": s})
    y, z = np.maximum(x, 0).reshape(32, 128), x.reshape(32, 128).copy()
    for _ in range(2):
        np.testing.assert_array_equal(first["y"], y)
        np.testing.assert_array_equal(first["z"], z)
        np.testing.assert_array_equal(first["yz"], np.concatenate([y, z]))
        model({"x": x + 1, "s": s})
    model({"x": x, "s": s}, out={"e": x})
    np.testing.assert_array_equal(first["z"], z)
    np.testing.assert_array_equal(model.eager({"x": z.reshape(64, 64), "s": s})["y"], y)


def test_results_stay_when_their_input_changes(tmp_path: Path) -> None:
    """An output that is an input of the host is not the caller's array."""
    proto = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [2])},
                     {"y": (TensorProto.STRING, [2])}, {})  # fmt: skip
    model = polyc.compile_model(proto)
    x = np.array(["a", "b"], object)
    got = model({"x": x})["y"]
    x[0] = "c"
    assert got.tolist() == ["a", "b"]


def test_arrays_of_other_packages() -> None:
    model = compiled("sgd")
    rng = np.random.default_rng(0)
    w, g = rng.random((N, N), np.float32), rng.random((N, N), np.float32)
    expected, wn = model({"w": w, "g": g}), np.zeros((N, N), np.float32)
    for kind in (Lends, memoryview):
        got = model({"w": kind(w), "g": kind(g.T.copy().T)}, out={"wn": kind(wn)})
        np.testing.assert_array_equal(got["wn"], expected["wn"])
        np.testing.assert_array_equal(wn, expected["wn"])
    with pytest.raises(ArgumentError, match="masked array"):
        model({"w": np.ma.masked_less(w, 0.5), "g": g})


def test_arrays_apart_are_told_from_arrays_that_overlap() -> None:
    """Pieces of one buffer, also ones that touch or are empty: refused exactly where two have a byte in common."""
    fresh, memory, refused = np.random.default_rng(), np.zeros(40, np.float32), 0
    for _ in range(300):
        cuts = [sorted(int(c) for c in fresh.integers(0, 41, 2)) for _ in range(3)]
        pieces = {f"y{k}": memory[a:b] for k, (a, b) in enumerate(cuts)}
        sets = [set(range(a, b)) for a, b in cuts]
        meet = bool(sets[0] & sets[1] or sets[0] & sets[2] or sets[1] & sets[2])
        refused += meet
        with pytest.raises(ArgumentError, match="share memory|weights") if meet else nullcontext():
            check_apart({n: pieces[n] for n in ("y0", "y1")}, pieces["y2"], Extents())
    assert 0 < refused < 300
