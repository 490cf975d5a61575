"""Registered C functions: chosen where they fit and are the cheapest, called as a step, and never named by a file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tiny_models import model_of

import polyc
from polyc.emit import targets
from polyc.emit.c import cc
from polyc.graph_driver import cli
from polyc.graph_driver.artifacts.package import load
from polyc.graph_driver.choosing.select import select
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.graph.external import DOMAIN, _registered
from polyc.graph_driver.importing.importer import import_model
from polyc.poly.errors import ArgumentError, BuildError

needs_compiler = pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler")

# A matrix product behind the interface of CBLAS, so that the test needs no BLAS on the machine; it counts its calls.
CBLAS = """
#include <stdint.h>
static long calls;
static void cblas_sgemm(int layout, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                        const float *b, int ldb, float beta, float *c, int ldc) {
    (void)layout; (void)ta; (void)tb;
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int t = 0; t < k; t++) sum += a[i * lda + t] * b[t * ldb + j];
            c[i * ldc + j] = alpha * sum + (beta ? beta * c[i * ldc + j] : 0);
        }
}
void gemm(void **b, const int64_t *s, void *runtime) {
    (void)runtime;
    cblas_sgemm(101, 111, 111, s[0], s[2], s[1], 1.0f, b[0], s[1], b[1], s[2], 0.0f, b[2], s[2]);
}
"""
MATMUL: dict[str, Any] = {"operator": "MatMul", "operands": ["f32[m, k]", "f32[k, n]"], "results": ["f32[m, n]"]}


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    yield
    for name in list(_registered):
        polyc.unregister_external(name)


def blas(name: str = "blas", **more: Any) -> None:
    polyc.register_external(name, **{**MATMUL, "function": "gemm", "source": CBLAS, **more})


def two_products(k: int = 12) -> onnx.ModelProto:
    """A large product, a ReLU, and one with three columns."""
    rng = np.random.default_rng(1)
    weights = {"a": rng.standard_normal((k, 16)).astype(np.float32), "b": rng.standard_normal((16, 3)).astype("f4")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["t"], "first"),
        helper.make_node("Relu", ["t"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "b"], ["y"], "second"),
    ]
    return model_of(nodes, {"x": [8, k]}, {"y": [8, 3]}, weights)


def x_of(k: int = 12) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng().standard_normal((8, k)).astype(np.float32)}


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_a_blas_is_called_where_it_fits(threads: int, tmp_path: Path) -> None:
    plain = compile_model(two_products(), threads=1)
    blas(shapes="n mod 8 = 0 and m >= 4")
    model = compile_model(two_products(), threads=threads, tasks=threads > 1)
    (step,) = [s for s in model.plan.steps if s.sizes]
    assert step.nodes == ("first",) and step.sizes == (8, 12, 16) and step.kind == "kernel"
    assert not model.report().host and any(p == "external: 1 nodes" for p in model.report().passes)
    for feeds in (x_of(), x_of()):
        model.executor().arena[:] = 0xFF
        for run in (model, model.eager):
            np.testing.assert_allclose(run(feeds)["y"], plain(feeds)["y"], rtol=1e-5, atol=1e-5)
    for left_out in ({"disable": ["external"]}, {"exact": True}):
        assert not any(s.sizes for s in compile_model(two_products(), threads=1, **left_out).plan.steps)

    model.save(tmp_path / "out")
    feeds = x_of()
    assert np.array_equal(load(tmp_path / "out")(feeds)["y"], model(feeds)["y"])
    polyc.unregister_external("blas")
    with pytest.raises(BuildError, match="external function 'blas', which is not registered here"):
        load(tmp_path / "out")
    blas(source=CBLAS.replace("beta *", "1 * beta *"))
    with pytest.raises(BuildError, match="registered in another version"):
        load(tmp_path / "out")
    np.testing.assert_allclose(model(feeds)["y"], plain(feeds)["y"], rtol=1e-5, atol=1e-5)  # goes on


@needs_compiler
@needs_compiler
def test_beside_sizes_that_stay_symbolic(tmp_path: Path) -> None:
    """A function for numbers, in a model whose other sizes a run decides."""
    proto = two_products()
    proto.graph.input.append(helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["rows", 5]))
    proto.graph.node.append(helper.make_node("Softmax", ["z"], ["s"], "other"))
    proto.graph.output.append(helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, ["rows", 5]))
    plain = compile_model(proto, threads=1)
    blas(shapes="n mod 8 = 0 and m >= 4")
    model = compile_model(proto, threads=1, symbolic=True)
    assert [s.sizes for s in model.plan.steps if s.nodes == ("first",)] == [(8, 12, 16)]
    model.save(tmp_path / "out")
    for rows in (1, 7):
        feeds = x_of() | {"z": np.random.default_rng().standard_normal((rows, 5)).astype(np.float32)}
        for run in (model, model.eager, load(tmp_path / "out")):
            for name, value in plain(feeds).items():
                np.testing.assert_allclose(run(feeds)[name], value, rtol=1e-5, atol=1e-5)


def test_every_refusal_has_its_reason() -> None:
    blas(shapes="n mod 8 = 0 and m >= 4")
    blas("whole", operands=["f32[m, m]", "f32[m, n]"])
    blas("double", operands=["f64[m, k]", "f64[k, n]"], results=["f64[m, n]"])
    blas("attributed", attributes={"transA": 1})
    blas("unary", operands=["f32[m, k]"])
    graph = import_model(two_products())
    first, _, second = select(graph, targets.host())
    why = {c.name: c.refusal for c in second.candidates}
    assert first.chosen == "blas" and second.chosen == "contraction"
    assert why["blas"] == "it needs n mod 8 = 0" and why["whole"] == "'r' is f32[8, 16], not f32[m, m]"
    assert why["double"] == "'r' is f32[8, 16], not f64[m, k]" and why["attributed"] == "it needs transA = 1"
    assert why["unary"] == "it takes 1 operand and gives 1 result"
    assert "blas: it needs n mod 8 = 0" in str(second)
    assert all(s.chosen == "contraction" for s in select(graph, targets.host(), naive=True) if s.operator == "MatMul")


@needs_compiler
def test_the_cheapest_of_all_combinations() -> None:
    """Functions of random costs for random sizes: the choice costs as little as any."""
    rng = np.random.default_rng()
    for _ in range(5):
        for name in list(_registered):
            polyc.unregister_external(name)
        for k in range(3):
            price = float(rng.integers(1, 2000))
            blas(f"b{k}", shapes=f"k >= {rng.integers(1, 20)}", cost=lambda s, p=price: p * s["k"] / 16)
        nodes, weights, width = [], {}, 12
        for k in range(int(rng.integers(1, 9))):
            out = int(rng.integers(1, 20))
            weights[f"w{k}"] = np.ones((width, out), np.float32)
            nodes.append(helper.make_node("MatMul", [f"t{k}", f"w{k}"], [f"t{k + 1}"], f"n{k}"))
            width = out
        graph = import_model(model_of(nodes, {"t0": [8, 12]}, {f"t{len(nodes)}": [8, width]}, weights))
        found = select(graph, targets.host())
        costs = [{c.name: c.cost for c in s.candidates if c.cost is not None} for s in found]
        total = sum(c[s.chosen] for c, s in zip(costs, found, strict=True))
        if np.prod([len(c) for c in costs]) < 20_000:
            assert total == min(sum(combination) for combination in itertools.product(*(c.values() for c in costs)))


@needs_compiler
def test_on_the_command_line(tmp_path: Path, capfd: Any) -> None:
    model, file = tmp_path / "net.onnx", tmp_path / "mine.py"
    model.write_bytes(two_products().SerializeToString())
    file.write_text(
        f"import polyc\npolyc.register_external('blas', **{MATMUL!r}, function='gemm', source={CBLAS!r}, "
        "shapes='n mod 8 = 0')\n"
    )
    assert cli.main(["explain", str(model), "--register", str(file), "--verbose"]) == 0
    out = capfd.readouterr().out
    assert "'first': blas 0 cycles" in out and "blas: it needs n mod 8 = 0" in out
    assert cli.main(["run", str(model), "--register", str(file), "--check", "--threads", "1"]) == 0
    assert cli.main(["run", str(model), "--register", str(tmp_path / "none.py")]) == 2
    assert "no such file" in capfd.readouterr().err


def test_a_file_cannot_name_a_function() -> None:
    """A node that looks like a call is an unknown operator."""
    node = helper.make_node("blas", ["x"], ["y"], "evil", domain=DOMAIN, call="polyc_0", symbol="system", sizes=[1])
    proto = model_of([node], {"x": [2, 2]}, {"y": [2, 2]}, {})
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    with pytest.raises(polyc.PolycError):
        compile_model(proto, threads=1)(x_of())


@needs_compiler
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"operands": ["f32 m k"]}, ArgumentError, "write it as"),
        ({"operands": ["f99[m]"]}, ArgumentError, "is no array"),
        ({"shapes": "m >"}, ArgumentError, "is no set of the sizes m, k, n"),
        ({"shapes": "q > 3"}, ArgumentError, "is no set"),
        ({"source": None}, ArgumentError, "either source or library"),
        ({"results": []}, ArgumentError, "needs a result"),
        ({"function": "other"}, BuildError, "no function 'other'"),
        ({"source": "void gemm("}, BuildError, "refused"),
        ({"source": None, "library": "/nonexistent/lib.so"}, BuildError, "cannot read the library"),
    ],
)
def test_wrong_declarations(change: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        blas(**change)
    assert not _registered
    with pytest.raises(ArgumentError, match="no external function 'blas'"):
        polyc.unregister_external("blas")


@needs_compiler
def test_a_shared_library(tmp_path: Path) -> None:
    path = tmp_path / "libmine.so"
    path.write_bytes(cc.build_shared(CBLAS))
    blas(source=None, library=path, cost=lambda s: 1.0)
    model, feeds = compile_model(two_products(), threads=1), x_of()
    assert sum(bool(s.sizes) for s in model.plan.steps) == 2
    polyc.unregister_external("blas")
    np.testing.assert_allclose(model(feeds)["y"], compile_model(two_products())(feeds)["y"], rtol=1e-5, atol=1e-5)
