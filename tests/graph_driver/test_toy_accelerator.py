"""A back end of a package of its own, `examples/toy_accelerator`, installed beside polyc; and packages that are broken.

The packages are installed by setuptools into a folder of the test, and used by fresh processes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx import helper as h

from tests import prepared_commands

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "examples" / "toy_accelerator"
INSTALL = "from setuptools import setup; setup(script_args=['-q', 'build_py', '-d', {0!r}, 'egg_info', '-e', {0!r}])"


def installed(project: Path, site: Path, work: Path) -> Path:
    """`project` as it is installed in `site`: its modules, and its entry points (this needs no `wheel`)."""
    copy = work / project.name
    shutil.copytree(project, copy)
    site.mkdir(exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-c", INSTALL.format(str(site))]
    subprocess.run(command, cwd=copy, check=True, capture_output=True, text=True)
    return site


def process(site: Path, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A process that sees polyc and what is in `site`."""
    found = os.pathsep.join([str(ROOT), str(site)])
    return prepared_commands.run(*command, cwd=cwd, env={**os.environ, "PYTHONPATH": found})


def polyc(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return process(site, "-m", "polyc.graph_driver.cli", *arguments)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("toy")
    return installed(TOY, work / "site", work)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MatMul, Add, Relu, MatMul, Softmax; with sizes that are no multiples of 16."""
    rng = np.random.default_rng(3)
    given = {"w": (20, 24), "b": (24,), "w2": (24, 10)}
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in given.items()]
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Add", ["a", "b"], ["c"]),
        h.make_node("Relu", ["c"], ["d"]), h.make_node("MatMul", ["d", "w2"], ["e"]),
        h.make_node("Softmax", ["e"], ["y"]),
    ]  # fmt: skip
    x, y = (h.make_tensor_value_info(n, TensorProto.FLOAT, [33, k]) for n, k in (("x", 20), ("y", 10)))
    model = h.make_model(
        h.make_graph(nodes, "net", [x], [y], weights), opset_imports=[h.make_opsetid("", 17)], ir_version=8
    )
    path = tmp_path_factory.mktemp("network") / "net.onnx"
    onnx.save(model, path)
    return path


MODEL = """
import json, sys
from importlib.metadata import entry_points
import numpy as np, polyc
path, folder = sys.argv[1:]
toy, cpu = polyc.compile_model(path, target="toy"), polyc.compile_model(path, threads=1)
from polyc_toy import counting
x = np.random.default_rng(0).standard_normal((33, 20)).astype(np.float32)
with counting() as counts:
    y = toy({"x": x})["y"]
seen = []
eager = toy.run({"x": x}, "eager", observer=lambda k, step, look: seen.append(step.label))["y"]
toy.save(folder)
loaded = polyc.load(folder)
print(json.dumps({
    "error": float(abs(y - cpu({"x": x})["y"]).max()), "host": toy.report().host, "name": toy.report().target,
    "same": [bool((z == y).all()) for z in (eager, loaded({"x": x})["y"])], "seen": seen,
    "cycles": counts.cycles, "moved": counts.moved, "scratchpad": counts.scratchpad, "products": counts.products,
}))
"""


def test_a_model_runs_on_it(site: Path, network: Path, tmp_path: Path) -> None:
    done = process(site, "-c", MODEL, str(network), str(tmp_path / "net.toy"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["error"] < 1e-5 and found["name"] == "toy" and found["host"] == []
    assert found["same"] == [True, True] and found["seen"] == ["MatMul+Add+Relu", "MatMul", "Softmax"]
    assert found["products"] == 33 * 20 * 24 + 33 * 24 * 10  # all of them on the matrix unit
    assert min(found["cycles"].values()) > 0 and found["moved"] > 0 and found["scratchpad"] == 3 * 16 * 16 * 4
    texts = sorted((tmp_path / "net.toy" / "kernels").glob("*.toy"))
    assert len(texts) == 3 and sum("mma " in t.read_text() for t in texts) == 2


CONVOLUTIONS = """
import numpy as np, onnx, polyc
from onnx import TensorProto, helper as h, numpy_helper
from polyc_toy import counting
rng = np.random.default_rng(4)
for stride, padding, groups in ((1, 0, 1), (1, 1, 1), (2, 1, 1), (1, 1, 2)):
    w = rng.standard_normal((8, 6 // groups, 3, 3)).astype(np.float32)
    node = h.make_node("Conv", ["x", "w"], ["a"], strides=[stride] * 2, pads=[padding] * 4, group=groups)
    x, y = h.make_tensor_value_info("x", 1, [1, 6, 9, 20]), h.make_tensor_value_info("y", 1, None)
    graph = h.make_graph([node, h.make_node("Relu", ["a"], ["y"])], "net", [x], [y], [numpy_helper.from_array(w, "w")])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    given = {"x": rng.standard_normal((1, 6, 9, 20)).astype(np.float32)}
    toy = polyc.compile_model(model, target="toy")
    with counting() as counts:
        got = toy(given)["y"]
    assert abs(got - polyc.compile_model(model, threads=1)(given)["y"]).max() < 1e-4 and not toy.report().host
    assert counts.products == got.size * w[0].size, (stride, padding, groups, counts)
"""


def test_convolutions_are_products_too(site: Path) -> None:
    """With padding, steps and groups, all of their products on the matrix unit: nothing names a convolution."""
    done = process(site, "-c", CONVOLUTIONS)
    assert done.returncode == 0, done.stderr


OPERATOR = """
import numpy as np, pickle, polyc
from polyc import dims, empty, f32, grid, op
import polyc_toy
B, M, N, K = dims("B M N K")

@op
def products(X: f32[B, M, K], Y: f32[B, K, N]) -> f32[B, M, N]:
    Z = empty((B, M, N), f32)
    for b, i, j in grid(B, M, N):
        Z[b, i, j] = 0.0
        for k in range(K):
            Z[b, i, j] += X[b, i, k] * Y[b, k, j]
    return Z

@op
def filtered(X: f32[B, M], F: f32[N, B, 3]) -> f32[N, M - 2]:
    Y = empty((N, M - 2), f32)
    for n, i in grid(N, M - 2):
        Y[n, i] = 0.0
        for b, t in grid(B, 3):
            Y[n, i] += X[b, i + t] * F[n, b, t]
    return Y

def arrays(*shapes):
    rng = np.random.default_rng(1)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]

for operator, given, work in (
    (products, arrays((2, 19, 33), (2, 33, 7)), 2 * 19 * 33 * 7), (filtered, arrays((5, 40), (6, 5, 3)), 6 * 38 * 15)
):
    kernel = operator.compile(target="toy")
    with polyc_toy.counting() as counts:
        got = kernel(*given)
    assert abs(got - operator(*given)).max() < 1e-4, operator
    assert counts.products == work, (operator, counts)
    assert (pickle.loads(pickle.dumps(kernel))(*given) == got).all()
    small = operator.compile(target="toy-2k")
    with polyc_toy.counting() as counts:
        got = small(*given)
    assert abs(got - operator(*given)).max() < 1e-4 and counts.products == 0 and counts.scratchpad == 0
    assert any("the scratchpad has 2048" in n for n in small.report()["notes"]), small.report()
print(products.schedule(target="toy", B=2, M=32, N=32, K=32).program("products"))
print(products.compile(target="toy", B=2, M=32, N=32, K=32).source("toy"))

from polyc_toy.machine import Toy
from polyc_toy.simulator import Program
large = Program("toy 1\\nargument A f32 4\\nalloc big f32 64 64\\nalloc more f32 1\\nfree more\\nfree big\\n", Toy())
try:
    large([np.zeros(16, np.uint8)])
except polyc_toy.ScratchpadError as error:
    print(error)
"""


def test_operators_run_on_it(site: Path, tmp_path: Path) -> None:
    """Batches of products and a convolution; on a machine whose scratchpad is too small on the scalar unit."""
    (tmp_path / "script.py").write_text(OPERATOR)
    done = process(site, "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "s.tile(" in done.stdout and "s.promote(" in done.stdout and "mma " in done.stdout
    assert done.stdout.endswith("toy: 'more' makes 16388 bytes, the scratchpad has 16384\n")


def test_the_commands_know_it(site: Path, network: Path, tmp_path: Path) -> None:
    folder = tmp_path / "net.toy"
    for arguments, said in (
        (["compile", str(network), "--target", "toy", "-o", str(folder)], "target   toy, 1 thread"),
        (["run", str(folder)], "output   y: float32[33, 10]"),
        (["doctor"], "back ends     llvm, c, c99, gpu, toy (toy, toy-2k)"),
        (["explain", str(network), "--target", "toy", "--verbose"], "runs on the matrix unit"),
        (["inspect", str(network), "--target", "toy", "--stage", "toy", "--kernel", "0"], "mma "),
        (["inspect", str(network), "--target", "toy", "--stage", "schedule", "--kernel", "0"], "promote "),
    ):
        done = polyc(site, *arguments)
        assert done.returncode == 0 and said in done.stdout, (arguments, done.stdout[-2000:], done.stderr[-2000:])
    for arguments, said in (
        (
            ["run", str(network), "--target", "toy", "--threads", "2"],
            "threads has no effect for target toy: it has one",
        ),
        (
            ["inspect", str(network), "--target", "toy", "--stage", "asm"],
            "target toy: there is no stage 'asm' (but loops",
        ),
        (["run", str(network), "--target", "tyo"], "unknown target 'tyo' (did you mean toy?)"),
    ):
        done = polyc(site, *arguments)
        assert done.returncode == 2 and done.stderr.startswith(f"polyc: {said}"), (arguments, done.stderr)
        assert done.stderr.count("\n") == 1
    done = process(tmp_path, "-m", "polyc.graph_driver.cli", "run", str(folder))  # where it is not installed
    assert done.returncode == 1 and done.stderr.startswith("polyc: the back end 'toy' is not installed; here are llvm")


def test_the_page_shows_what_is_there(site: Path, tmp_path: Path) -> None:
    """Code of files that it quotes stands there; its script prints what it says."""
    page = (ROOT / "docs" / "back-ends.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|toml|text)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    quoted = [text.split("\n", 1) for _, text in blocks if text.startswith("# examples/")]
    assert len(quoted) == 3
    for where, text in quoted:
        assert text in (ROOT / where.removeprefix("# ")).read_text(encoding="utf-8"), where
    (script, printed) = (text for _, text in blocks if not text.startswith("# examples/"))
    (tmp_path / "script.py").write_text(script)
    done = process(site, "script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


BROKEN = {
    "raises": ("raise RuntimeError('no driver\\nsecond line')", "no driver"),
    "missing": ("", "module 'raises_nothing' has no attribute 'Made'"),
    "lacking": ("from polyc.graph_driver.backends.protocol import Backend\nclass Made(Backend):\n    name = 'x'\n",
                "Can't instantiate abstract class Made"),
    "stranger": ("class Made:\n    name = 'stranger'\n", "Made is not derived from polyc.graph_driver.backends"),
    "gpu": ("from polyc_toy.backend import ToyBackend\nclass Made(ToyBackend):\n    name = 'gpu'\n",
            "the name 'gpu' is taken"),
    "greedy": ("from polyc_toy.backend import ToyBackend\nclass Made(ToyBackend):\n    name = 'greedy'\n"
               "    def targets(self):\n        return ('sm_80',)\n", "the target 'sm_80' is one of the back end gpu"),
}  # fmt: skip


def test_its_machines_are_files_too(site: Path, network: Path, tmp_path: Path) -> None:
    own, wrong, cpu = (tmp_path / f"{n}.toml" for n in ("mine", "wrong", "cpu"))
    own.write_text('base = "toy"\nscratchpad = 2048\n')
    wrong.write_text('base = "toy"\nwings = 2\n')
    cpu.write_text('base = "x86-64"\nl2 = 1048576\n')
    ran = polyc(site, "run", str(network), "--target", str(own))
    assert ran.returncode == 0 and not ran.stderr
    refused = polyc(site, "run", str(network), "--target", str(wrong))
    assert refused.returncode == 2 and refused.stderr.startswith("polyc: target file wrong.toml: 'wings' is none of")
    assert polyc(site, "explain", str(network), "--target", str(cpu)).returncode == 0


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_one_line_and_breaks_nothing_else(name: str, site: Path, network: Path, tmp_path: Path) -> None:
    text, said = BROKEN[name]
    module = "raises_nothing" if name == "missing" else f"broken_{name}"
    here = tmp_path / "site"
    shutil.copytree(site, here)
    (here / f"{module}.py").write_text(text)
    about = here / f"broken_{name}.egg-info"
    about.mkdir()
    (about / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: broken-{name}\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[polyc.backends]\n{name} = {module}:Made\n")
    doctor = polyc(here, "doctor", "--json")
    found = json.loads(doctor.stdout)
    assert doctor.returncode == 0 and set(found["backends"]) == {"llvm", "c", "c99", "gpu", "toy"}
    (line,) = found["broken_backends"]
    assert line.startswith(f"the back end '{name}' ({module}:Made) cannot be used: ") and said in line
    asked = polyc(here, "run", str(network), "--target", "sm_80" if name == "greedy" else name)
    if name not in ("gpu", "greedy"):
        assert (asked.returncode, asked.stderr) == (2, f"polyc: {line}\n")
    for target in ("toy", "cpu") if name == "raises" else ():
        done = polyc(here, "run", str(network), "--target", target)
        assert done.returncode == 0 and not done.stderr, (done.stdout, done.stderr)
