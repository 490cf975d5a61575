"""Stand-alone C99: builds without a warning, needs no allocator, computes what the model computes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import c_programs
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tiny_models import model_of, network, recurrent, with_host_steps

from polyc.emit.c import cc
from polyc.graph_driver import cli
from polyc.graph_driver.artifacts.c_export import export_c
from polyc.graph_driver.checking.check import random_input
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.options import CompileOptions
from polyc.poly.errors import BuildError, ModelError

pytestmark = pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler")


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> bool:
    if expected.dtype.kind != "f" and expected.dtype.name != "bfloat16":
        return np.array_equal(found, expected)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    scale = np.abs(b[np.isfinite(b)]).max(initial=1e-30)
    return np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def compare(model: Any, tmp_path: Path, tolerance: float = 1e-5, *flags: str, **dims: int) -> Path:
    """Export, build and run; the outputs agree with those of the compiled model."""
    folder = tmp_path / "c"
    export_c(model, folder, "net", CompileOptions(dims=dims or {}))
    compiled = compile_model(model, threads=1, dims=dims)
    rng = np.random.default_rng()
    feeds = {n: random_input(n, d, s, int(rng.integers(1 << 30))) for n, (d, s) in compiled.inputs.items()}
    found = c_programs.call(c_programs.build(folder, *flags), "net", compiled, feeds)
    for name, expected in compiled(feeds).items():
        assert close(found[name], expected, tolerance), name
    return folder


def test_a_network_and_its_example_program(tmp_path: Path) -> None:
    folder = compare(network(), tmp_path, N=2)
    out = subprocess.run([c_programs.build(folder, output="main", main=True)], capture_output=True, text=True).stdout
    assert out.count("y[") == 10
    text = "".join(p.read_text() for p in folder.glob("*.[ch]"))
    assert not re.search(r"\b(malloc|calloc|free|aligned_alloc|alloca)\b", text)


def test_without_libm(tmp_path: Path) -> None:
    names = ["Floor", "Ceil", "Round", "Sqrt", "Abs", "Exp", "Tanh", "Erf", "Log", "Sin"]
    nodes = [helper.make_node(n, ["x"], [n.lower()]) for n in names]
    nodes.append(helper.make_node("Mod", ["x", "z"], ["mod"], fmod=1))
    outputs = {n.lower(): [64] for n in [*names, "Mod"]}
    model = model_of(nodes, {"x": [64], "z": [64]}, outputs, {})
    folder = compare(model, tmp_path, 1e-6, "-O2", "-DPOLYC_NO_LIBM")
    library = c_programs.build(folder, "-O2", "-DPOLYC_NO_LIBM", "-fno-builtin")
    needs = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True).stdout
    symbols = {line.split()[-1].split("@")[0] for line in needs.splitlines() if " U " in line}
    assert symbols <= {"memcpy", "memset"}
    compiled = compile_model(model, threads=1)
    specials = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, -0.5, 1.5, 2.5, 1e30, -3.7, 1e-45], np.float32)
    feeds = {"x": np.resize(specials, 64), "z": np.resize(np.roll(specials, 5), 64)}
    found = c_programs.call(library, "net", compiled, feeds)
    for name in ("floor", "ceil", "round", "abs", "mod", "sqrt"):
        expected = compiled(feeds)[name]
        np.testing.assert_array_equal(found[name], expected, name)
        assert np.array_equal(np.signbit(found[name]), np.signbit(expected)) or name in ("mod", "sqrt")


def test_halves_integers_and_control_flow(tmp_path: Path) -> None:
    compare(recurrent(), tmp_path / "a")
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["h", "h"], ["hh"]),
        helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["b"], ["bf"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["hh"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["i", "i"], ["ii"]),
        helper.make_node("Sub", ["ii", "i"], ["j"]),
    ]
    inputs = {"x": [200], "i": (TensorProto.INT32, [50])}
    outputs = {"y": [200], "bf": [200], "j": (TensorProto.INT32, [50]), "hh": (TensorProto.FLOAT16, [200])}
    model = model_of(nodes, inputs, outputs, {}, opset=18)
    folder = compare(model, tmp_path / "b", 0.0)
    compiled = compile_model(model, threads=1)
    rng = np.random.default_rng()
    bits = rng.integers(0, 1 << 32, 200, dtype=np.uint32).view(np.float32)
    scaled = np.ldexp(rng.standard_normal(200), rng.integers(-30, 18, 200)).astype(np.float32)
    for x in (bits, scaled):
        feeds = {"x": x, "i": rng.integers(-(2**31), 2**31, 50).astype(np.int32)}  # products wrap
        found = c_programs.call(folder / "model.so", "net", compiled, feeds)
        for name, expected in compiled(feeds).items():
            np.testing.assert_array_equal(found[name], expected, name)


def test_sources_are_the_same_every_time_and_replace_only_sources(tmp_path: Path) -> None:
    def texts(name: str) -> dict[str, str]:
        export_c(network(), tmp_path / name, "net", CompileOptions(dims={"N": 1}))
        return {p.name: p.read_text() for p in (tmp_path / name).glob("*.[ch]")}

    first = texts("a")
    assert first == texts("b") == texts("a")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x")
    with pytest.raises(BuildError, match="holds no C sources of polyc"):
        export_c(network(), tmp_path / "other", options=CompileOptions(dims={"N": 1}))


def test_names_are_made_safe(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["int"], ["*/ évil"]), helper.make_node("Neg", ["int"], ["INT"])]
    export_c(model_of(nodes, {"int": [3]}, {"*/ évil": [3], "INT": [3]}, {}), tmp_path / "c", "1 model*/")
    c_programs.build(tmp_path / "c", output="main", main=True)


TAKEN = ("printf", "exp", "node", "outside", "int64_t", "number")


@pytest.mark.parametrize("name", TAKEN)
def test_names_that_c_has_taken(name: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["x", name], ["y"], name='a"??/"')]
    proto = model_of(nodes, {"x": [10, 4], name: (TensorProto.INT64, [3])}, {"y": [3, 4]}, {})
    export_c(proto, tmp_path / "c", "net")
    c_programs.build(tmp_path / "c", output="main", main=True)


def test_what_cannot_be_c_is_one_line(tmp_path: Path, capfd: Any) -> None:
    with pytest.raises(ModelError, match="no C for operator NonZero 'nonzero'.*runs on the host"):
        export_c(with_host_steps(), tmp_path / "c")
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    assert cli.main(["compile", str(path), "--target", "c", "-o", str(tmp_path / "d"), "--dim", "N=1"]) == 0
    assert "wrote" in capfd.readouterr().out and (tmp_path / "d" / "net.h").is_file()
    assert cli.main(["compile", str(path), "--target", "c", "--threads", "3"]) == 2
    assert cli.main(["compile", str(path), "--target", "c", "--dim", "N=1", "--memory-limit", "10"]) == 1
    assert "alive at step" in capfd.readouterr().err


@pytest.mark.long
def test_a_draw_of_the_onnx_suite(tmp_path: Path) -> None:
    from onnx_suite.cases import all_cases, class_of

    rng = np.random.default_rng()
    cases = [c for c in all_cases() if class_of(c) in ("main", "double", "half")]
    built = 0
    for k in rng.choice(len(cases), 120, replace=False):
        case = cases[k]
        try:
            export_c(case.model, tmp_path / f"{k}", "net")
        except ModelError:
            continue  # host operators, or sizes that are not given
        compiled = compile_model(case.model, threads=1)
        inputs, _ = case.data_sets[0]
        arrays = [numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x) for x in inputs]
        feeds = dict(zip(compiled.plan.inputs, arrays))
        found = c_programs.call(c_programs.build(tmp_path / f"{k}", "-O1"), "net", compiled, feeds)
        for name, expected in compiled(feeds).items():
            assert close(found[name], expected, case.rtol), (case.name, name)
        built += 1
    assert built > 60
