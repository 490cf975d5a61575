"""`polyc.trace`: the function itself, the recorded graph and its kernels agree; guards, retraces, refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyc
from polyc import dims, empty, f32, grid, op
from polyc.graph_driver.python_graphs.trace import Traced

N, M = dims("N M")
RNG = np.random.default_rng(5)
W1, B1, W2, B2, W3 = (RNG.standard_normal(s).astype("f") for s in ((16, 32), (32,), (32, 32), (32,), (32, 4)))


@op
def scaled(X: f32[N, M], w: f32[M]) -> f32[N, M]:
    Y = empty((N, M), f32)
    for i, j in grid(N, M):
        Y[i, j] = X[i, j] * w[j] + 1.0
    return Y


def agree(traced: Traced, *args: Any, tol: float = 1e-5) -> None:
    """Eager, interpreted and compiled."""
    wanted = traced.eager(*args)
    for found in (traced.interpreted(*args), traced(*args)):
        assert type(found) is type(wanted)
        for a, b in zip(_flat(wanted), _flat(found), strict=True):
            assert (np.asarray(a).dtype, np.shape(a)) == (np.asarray(b).dtype, np.shape(b))
            np.testing.assert_allclose(b, a, rtol=tol, atol=tol)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [x for v in value.values() for x in _flat(v)]
    if isinstance(value, (tuple, list)):
        return [x for v in value for x in _flat(v)]
    return [value]


def network(x: np.ndarray) -> np.ndarray:
    h = np.tanh(x @ W1 + B1)
    h = np.maximum(h @ W2 + B2, 0)
    e = np.exp(h @ W3 - (h @ W3).max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def images(rows: int) -> np.ndarray:
    return RNG.standard_normal((rows, 16)).astype("f")


def test_three_layers() -> None:
    traced = polyc.trace(network)
    agree(traced, images(5))
    assert (traced.count, traced.retraces) == (1, 0)


def test_another_shape_and_another_type_retrace() -> None:
    traced = polyc.trace(lambda x, power: np.tanh(x) ** power)
    x = images(3)
    traced(x, 2), traced(images(3), 2)
    assert traced.retraces == 0
    agree(traced, images(4), 2)
    agree(traced, x.astype("d"), 2)
    agree(traced, x, 3)
    traced(x, 2)
    assert (traced.count, traced.retraces) == (4, 3)
    reasons = [p.reason for p in traced.programs]
    assert "x: float32[4, 16], was float32[3, 16]" in reasons
    assert "x: float64[3, 16], was float32[4, 16]" in reasons
    assert "power: 3, was 2" in "".join(reasons)


def test_arrays_from_around_are_read_at_each_call() -> None:
    shift, factor = np.ones(16, "f"), 2.0

    def f(x: np.ndarray) -> np.ndarray:
        return (x + shift) * factor

    traced, x = polyc.trace(f), images(2)
    agree(traced, x)
    shift += 1
    agree(traced, x)
    shift = np.full(16, 7, "f")
    agree(traced, x)
    assert traced.retraces == 0
    factor = 3.0
    agree(traced, x)
    assert traced.retraces == 1


def test_what_is_computed_of_arrays_from_around_stays_true() -> None:
    table = np.arange(16, dtype="f")

    def f(x: np.ndarray) -> np.ndarray:
        return x + (table * 2)

    traced, x = polyc.trace(f), images(2)
    agree(traced, x)
    table += 1
    agree(traced, x)
    assert traced.retraces == 0  # the graph is the same


class Layer:
    """A layer with weights that a step replaces."""

    def __init__(self, n: int, m: int) -> None:
        self.weight, self.slope, self.unused = RNG.standard_normal((n, m)).astype("f"), 0.1, object()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        h = x @ self.weight
        return np.where(h > 0, h, h * self.slope)


class Network:
    """Layers in a list, and a method that is traced."""

    def __init__(self) -> None:
        self.layers = [Layer(16, 8), Layer(8, 3)]

    def forward(self, x: np.ndarray) -> np.ndarray:
        for layer in self.layers:
            x = layer(x)
        return x


def test_methods_of_objects() -> None:
    model = Network()
    traced, x = polyc.trace(model.forward), images(4)
    agree(traced, x)
    model.layers[0].weight = model.layers[0].weight * 2
    model.layers[1].unused = 3  # type: ignore[assignment]
    agree(traced, x)
    assert traced.retraces == 0
    model.layers[1].slope = 0.5
    agree(traced, x)
    model.layers.append(Layer(3, 2))
    agree(traced, x)
    assert traced.retraces == 2


def test_operators_of_the_language_are_nodes() -> None:
    w = RNG.standard_normal(16).astype("f")
    traced = polyc.trace(lambda x: np.tanh(scaled(x, w)).sum(axis=0))
    agree(traced, images(6))
    model = traced.programs[0].model
    assert model is not None and model.report().kernels == 1  # fused with what follows


def test_structures_of_arguments_and_results() -> None:
    def f(params: dict[str, Any], *rest: np.ndarray, scale: float = 1.0) -> dict[str, Any]:
        total = sum(x.sum() for x in rest)
        return {"y": (params["w"] * scale, [total]), "same": params["w"], "n": len(rest)}

    traced = polyc.trace(f)
    agree(traced, {"w": images(2)}, images(1), images(3))
    p = {"w": images(2)}
    assert traced(p)["same"] is p["w"]
    assert traced(p, scale=2.0)["n"] == 0


def test_updates_in_place_of_own_tensors() -> None:
    def f(x: np.ndarray) -> np.ndarray:
        h = x * 2
        same = h
        h += 1
        h *= x
        return h + same

    agree(polyc.trace(f), images(2))


SHIFT = np.zeros(16, "f")


def _adds(x: np.ndarray) -> np.ndarray:
    x += 1
    return x


def _view(x: np.ndarray) -> np.ndarray:
    h = x * 2
    v = h[0]
    h += 1
    return v + h


def _sets(x: np.ndarray) -> np.ndarray:
    h = x * 2
    h[0] = 1
    return h


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: x @ W2, "Incompatible dimensions"),
        (lambda x: x.reshape(7, -1), "incompatible shapes"),
        (lambda x: x.reshape(3, 5), "cannot become"),
        (lambda x: np.fft.fft(x), "no nodes for np.fft"),
        (lambda x: np.interp(x, x, x), "no nodes for np.interp"),
        (lambda x: x if x.sum() > 0 else -x, "np.where"),
        (lambda x: np.add(x, 1, out=SHIFT), "write to an array of the program"),
        (lambda x: np.asarray(x), "which only a run has"),
        (lambda x: x[x > 0], "mask"),
        (lambda x: x[99], "outside of axis 0"),
        (lambda x: x.sum(axis=5), "has no axis 5"),
        (lambda x: x + np.array(["a"]), "no element type"),
        (lambda x: x + np.random.rand(16), "random numbers"),
        (lambda x: ~x, "np.invert does not take f32"),
        (lambda x: scaled(x, x), "scaled: w has 1 axis"),
        (lambda x: scaled(x.astype("d"), SHIFT), "takes X as f32, not f64"),
        (lambda x: [int(v) for v in x[0]], "int()"),
        (lambda x: x.nowhere, "has no 'nowhere'"),
        (_adds, "would update an argument or a view"),
        (_view, "would update an argument or a view"),
        (_sets, "cannot be set"),
    ],
)
def test_refusals_say_what_and_where(f: Callable[..., Any], text: str) -> None:
    with pytest.raises((polyc.ModelError, AttributeError)) as refused:
        polyc.trace(f)(images(3))
    said = str(refused.value)
    assert text in said and "\n" not in said
    assert said.startswith("test_trace.py:") or "random" in said


def test_arguments_that_are_no_arrays() -> None:
    with pytest.raises(polyc.ArgumentError, match="missing a required argument"):
        polyc.trace(network)()
    with pytest.raises(polyc.ArgumentError, match="arguments are arrays"):
        polyc.trace(network)({1, 2})
    with pytest.raises(polyc.ArgumentError, match="takes a function"):
        polyc.trace(3)  # type: ignore[arg-type]
    with pytest.raises(polyc.ArgumentError, match="thread"):
        polyc.trace(network, thread=2)


def test_a_tensor_that_outlives_its_call() -> None:
    kept: list[Any] = []

    def f(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        return x * 2

    polyc.trace(f)(images(2))
    with pytest.raises(polyc.ModelError, match="outlived"):
        kept[0] + 1


def test_one_graph_for_all_sizes() -> None:
    traced = polyc.trace(lambda x: np.tanh(x @ W1).sum(axis=0) / x.shape[0], sizes={"x": ("N", None)}, threads=1)
    for rows in (5, 1, 7, 300):
        agree(traced, images(rows))
    assert traced.count == 1
    agree(traced, images(7).astype("d"))
    assert traced.count == 2


def test_sizes_that_a_guard_excludes_have_a_graph_of_their_own() -> None:
    def f(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y  # M = 1 repeats y, all others have it as long as x

    traced = polyc.trace(f, sizes={"x": ("N",), "y": ("M",)}, threads=1)
    a = np.arange(12, dtype="f")
    agree(traced, a, a)
    agree(traced, a[:5], a[:5])
    assert traced.count == 1
    agree(traced, a, a[:1])
    agree(traced, a[:7], a[:1])
    with pytest.raises(polyc.PolycError, match=r"Add|broadcast|sizes"):
        traced(a, a[:5])


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"x": ("N", 8)}, "x has shape [3, 16], sizes say [N, 8]"),
        ({"x": ("N",)}, "x has shape [3, 16], sizes say [N]"),
        ({"x": ("N", "N")}, "N is 3"),
        ({"x": "N"}, "is no shape"),
    ],
)
def test_sizes_that_do_not_fit(sizes: Any, text: str) -> None:
    with pytest.raises(polyc.ArgumentError) as refused:
        polyc.trace(lambda x: x * 2, sizes=sizes)(images(3))
    assert text in str(refused.value)
