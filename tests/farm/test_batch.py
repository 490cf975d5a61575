"""`polyc.batch`: lists, bags and Dask arrays through a compiled model on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("distributed")

from clusters import cluster

import polyc
from polyc.graph_driver.farm.cluster import connected
from polyc.poly.errors import ArgumentError, BuildError

da = pytest.importorskip("dask.array")
bag = pytest.importorskip("dask.bag")

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[ROWS, 5] x) => (float[ROWS, 5] y, float[ROWS] s) { y = Softmax(x)  m = ReduceMax <keepdims=0, axes=[1]> (x)
 s = Sqrt(m) }
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with cluster(tmp_path_factory.mktemp("two"), 2) as two, connected(two.address) as found:
        yield found


def model(rows: str) -> polyc.Model:
    return polyc.compile_model(onnx.parser.parse_model(TEXT.replace("ROWS", rows)))


def right(x: np.ndarray, found: dict[str, Any]) -> None:
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(np.asarray(found["y"]), e / e.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(found["s"]), np.sqrt(x.max(1)), rtol=1e-5)


def test_processes_that_are_started_here() -> None:
    with connected("local:1") as found:
        x = np.random.default_rng().random((4, 5), "f")
        (answer,) = polyc.batch(model("4"), [x], found)
        right(x, answer)
        workers = found.scheduler_info()["workers"]
    assert len(workers) == 1


def test_lists_and_bags(client: Any) -> None:
    inputs = [np.random.default_rng(k).random((4, 5), "f") for k in range(7)]
    compiled = model("4")
    for x, found in zip(inputs, polyc.batch(compiled, inputs, client), strict=True):
        right(x, found)
    for x, found in zip(inputs, polyc.batch(compiled, [{"x": x} for x in inputs], client), strict=True):
        right(x, found)
    assert polyc.batch(compiled, [], client) == []
    found = client.compute(polyc.batch(compiled, bag.from_sequence(inputs, npartitions=3), client)).result(60)
    for x, one in zip(inputs, found, strict=True):
        right(x, one)


@pytest.mark.parametrize("rows", ["4", "N"])
def test_arrays(client: Any, rows: str) -> None:
    x = np.random.default_rng().random((12, 5), "f")
    lazy = da.from_array(x, chunks=(5, 2))
    for arrays in (lazy, {"x": lazy}):
        found = polyc.batch(model(rows), arrays, client)
        assert found["y"].shape == (12, 5) and found["s"].shape == (12,)
        assert found["y"].numblocks[0] == 3 and found["y"].dtype == np.float32
        right(x, {name: client.compute(value).result(60) for name, value in found.items()})


def test_refusals(client: Any) -> None:
    compiled = model("4")
    with pytest.raises(ArgumentError, match="10 rows are no multiple of 4"):
        polyc.batch(compiled, da.zeros((10, 5), dtype="f"), client)
    with pytest.raises(ArgumentError, match="'z' is no input"):
        polyc.batch(compiled, {"x": da.zeros((4, 5)), "z": da.zeros(4)}, client)
    with pytest.raises(ArgumentError, match="one input is model"):
        polyc.batch(compiled, {"x": np.zeros((4, 5))}, client)
    with pytest.raises(ArgumentError, match="not ndarray"):
        polyc.batch(compiled, np.zeros((4, 5)), client)
    with pytest.raises(ArgumentError):  # a worker says why
        polyc.batch(compiled, [np.zeros((3, 5), "f")], client)
    with pytest.raises(BuildError, match="give it a distributed.Client"):
        polyc.batch(compiled, [])
