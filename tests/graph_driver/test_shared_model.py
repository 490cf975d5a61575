"""Models as shared objects: called from C, by ctypes and by the loader, without polyc in the process."""

import ctypes
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import polyc
from polyc.graph_driver import cli
from polyc.graph_driver.artifacts.shared_model import write_shared
from polyc.poly.errors import ModelError

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="no linker")
NINE = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip
RNG = np.random.default_rng(3)


def gather() -> onnx.ModelProto:
    """Rows by data, products with weights, two outputs."""
    rng = np.random.default_rng(3)
    weights = {"t": rng.standard_normal((50, 24)).astype("f"), "w": rng.standard_normal((24, 16)).astype("f")}
    nodes = [
        helper.make_node("Gather", ["t", "rows"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
        helper.make_node("ReduceMax", ["c"], ["z"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("rows", 7, [9]), helper.make_tensor_value_info("x", 1, [9, 24])],
        [helper.make_tensor_value_info("y", 1, [9, 16]), helper.make_tensor_value_info("z", 1, [])],
        [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def light_model(name: str) -> Path:
    return Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"


def feeds() -> dict[str, np.ndarray]:
    return {"rows": RNG.integers(0, 50, 9), "x": RNG.standard_normal((9, 24)).astype("f")}


@pytest.fixture(scope="module", params=[1, 2])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[polyc.Model, Path]:
    model = polyc.compile_model(gather(), threads=request.param)
    path = tmp_path_factory.mktemp("shared") / "little-net.so"
    assert write_shared(model, path) == ("little-net.so", "little-net.h", "little-net.py")
    return model, path


PROGRAM = r"""
#include "little-net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  little_net *m = NULL;
  float x[9 * 24], y[9 * 16], z;
  int64_t rows[9];
  const void *in[2] = {rows, x};
  void *out[2] = {y, &z};
  int k;
  if (little_net_create(NULL, 0) != LITTLE_NET_WRONG_ARGUMENT || little_net_create(&m, -1) == 0) return 2;
  if (little_net_create(&m, 0)) return 3;
  if (little_net_inputs() != 2 || strcmp(little_net_input(1)->name, "x") || little_net_input(1)->bytes != sizeof x)
    return 4;
  if (little_net_output(2) || little_net_output(-1) || little_net_output(0)->shape[1] != 16) return 5;
  for (k = 0; k < 9; k++) rows[k] = 5 * k;
  for (k = 0; k < 9 * 24; k++) x[k] = (float)(k % 7) - 3;
  if (little_net_run(m, in, NULL) != LITTLE_NET_WRONG_ARGUMENT) return 6;
  if (little_net_run(m, in, out)) return 7;
  for (k = 0; k < 9 * 16; k++) printf("%.9g\n", y[k]);
  printf("%.9g\n", z);
  rows[3] = 50;
  if (little_net_run(m, in, out) != LITTLE_NET_OUTSIDE) return 8;
  if (strcmp(little_net_error(3), "an index lies outside of what it chooses from")) return 9;
  little_net_destroy(m);
  little_net_destroy(NULL);
  return 0;
}
"""


@needs_gcc
def test_a_c_program(made: tuple[polyc.Model, Path]) -> None:
    model, path = made
    folder = path.parent
    (folder / "main.c").write_text(PROGRAM)
    command = [
        str(GCC),
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
        "main.c",
        "./little-net.so",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    found = np.array([float(line) for line in done.stdout.split()], "f")
    given = {"rows": 5 * np.arange(9), "x": (np.arange(216) % 7 - 3).astype("f").reshape(9, 24)}
    wanted = model(given)
    np.testing.assert_allclose(found[:-1], wanted["y"].reshape(-1), rtol=1e-6)
    np.testing.assert_allclose(found[-1], wanted["z"], rtol=1e-6)


LOADED = """
import sys, numpy as np, importlib.util
spec = importlib.util.spec_from_file_location("loader", sys.argv[1] + "/little-net.py")
loader = importlib.util.module_from_spec(spec); spec.loader.exec_module(loader)
model = loader.Model(sys.argv[1] + "/little-net.so")
assert model.inputs == [("rows", "i64", (9,)), ("x", "f32", (9, 24))], model.inputs
given = dict(np.load(sys.argv[1] + "/given.npz"))
np.savez(sys.argv[1] + "/found.npz", **model(given))
try: model(given | {"rows": np.full(9, 50)}); raise SystemExit("no error")
except RuntimeError as error: assert "outside" in str(error)
try: model({"x": given["x"]}); raise SystemExit("no error")
except ValueError as error: assert "rows" in str(error)
assert not any(m.split(".")[0] in ("polyc", "llvmlite", "islpy", "onnx") for m in sys.modules)
"""


@needs_gcc
def test_the_loader_needs_numpy_alone(made: tuple[polyc.Model, Path]) -> None:
    model, path = made
    given = feeds()
    np.savez(path.parent / "given.npz", rows=given["rows"], x=given["x"])
    subprocess.run([sys.executable, "-I", "-c", LOADED, str(path.parent)], check=True, timeout=60, cwd="/")
    with np.load(path.parent / "found.npz") as found:
        for name, wanted in model(given).items():
            np.testing.assert_array_equal(found[name], wanted)


@needs_gcc
def test_instances_run_at_the_same_time(made: tuple[polyc.Model, Path]) -> None:
    model, path = made
    library = ctypes.CDLL(str(path))
    every = [feeds() for _ in range(4)]
    wanted = [model(f) for f in every]
    problems: list[tuple[int, int]] = []

    def work(k: int) -> None:
        handle = ctypes.c_void_p()
        assert library.little_net_create(ctypes.byref(handle), 0) == 0
        given = [every[k]["rows"], every[k]["x"]]
        for _ in range(50):
            out = [np.empty((9, 16), "f"), np.empty((), "f")]
            pointers = [(ctypes.c_void_p * 2)(*(a.ctypes.data for a in arrays)) for arrays in (given, out)]
            code = library.little_net_run(handle, *pointers)
            if code or not np.array_equal(out[0], wanted[k]["y"]):
                problems.append((k, code))
        library.little_net_destroy(handle)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert problems == []


@needs_gcc
def test_only_the_interface_is_seen(made: tuple[polyc.Model, Path]) -> None:
    shown = subprocess.run(["nm", "-D", "--defined-only", str(made[1])], capture_output=True, text=True)
    if shown.returncode == 0:
        names = {line.split()[-1] for line in shown.stdout.splitlines()}
        assert all(n.startswith("little_net_") or n == "polyc_prefix" for n in names), names
        assert len(names) == 10
    size = made[1].stat().st_size
    assert size < 200_000, size


@needs_gcc
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(gather(), tmp_path / "m.onnx")
    assert cli.main(["compile", str(tmp_path / "m.onnx"), "--emit", "so", "--threads", "1"]) == 0
    assert "m.so, m.h, m.py" in capsys.readouterr().out
    assert (tmp_path / "m.so").is_file()
    assert cli.main(["compile", str(tmp_path / "m.onnx"), "--emit", "so", "-o", str(tmp_path / "m.bin")]) == 2
    assert cli.main(["compile", str(tmp_path / "m.onnx"), "--emit", "so", "--target", "c"]) == 1
    assert "through LLVM" in capsys.readouterr().err


@pytest.mark.parametrize("threads", [1, 2])
def test_for_arm_under_emulation(threads: int, tmp_path: Path) -> None:
    tools = [shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64-static")]
    if None in tools:
        pytest.skip("no compiler or emulator for Arm")
    write_shared(polyc.compile_model(gather(), target="aarch64", threads=threads), tmp_path / "little-net.so")
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [str(tools[0]), "-std=c99", "main.c", "./little-net.so", "-lpthread", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    emulated = [str(tools[1]), "-L", "/usr/aarch64-linux-gnu", "./main"]
    done = subprocess.run(emulated, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    found = np.array([float(line) for line in done.stdout.split()], "f")
    given = {"rows": 5 * np.arange(9), "x": (np.arange(216) % 7 - 3).astype("f").reshape(9, 24)}
    wanted = polyc.compile_model(gather(), threads=1)(given)
    np.testing.assert_allclose(found[:-1], wanted["y"].reshape(-1), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[-1], wanted["z"], rtol=1e-5)


@needs_gcc
@pytest.mark.long
@pytest.mark.parametrize("name", NINE)
def test_light_models_take_a_megabyte_beside_their_weights(name: str, tmp_path: Path) -> None:
    model = polyc.compile_model(light_model(name), threads=2)
    write_shared(model, tmp_path / "m.so")
    assert (tmp_path / "m.so").stat().st_size - model.plan.weight_bytes <= 1_000_000


def test_what_needs_python_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, [3])],
                              [helper.make_tensor_value_info("y", 7, [1, None])])  # fmt: skip
    model = polyc.compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), threads=1)
    with pytest.raises(ModelError, match="without Python"):
        write_shared(model, tmp_path / "m.so")
