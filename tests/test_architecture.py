"""The one-way flow of the five packages, and that importing polyc stays light."""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sources import statements

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "poly": {"poly"},
    "frontend_dsl": {"poly", "frontend_dsl"},
    "scheduler": {"poly", "scheduler"},
    "emit": {"poly", "emit"},
    "graph_driver": {"poly", "frontend_dsl", "scheduler", "emit", "graph_driver"},
}


@functools.cache
def imported(path: Path) -> set[str]:
    """What a file imports, lazily or not: top-level names, of polyc's own modules the package (`polyc.emit`)."""
    modules: set[str] = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            modules |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules |= {f"{node.module}.{a.name}" for a in node.names}
    return {".".join(name.split(".")[: 2 if name.startswith("polyc.") else 1]) for name in modules}


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_follow_the_one_way_flow(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    allowed = {f"polyc.{name}" for name in ALLOWED[package]}
    wrong = [
        f"{f.relative_to(ROOT)}: {n}"
        for f in files
        for n in imported(f)
        if n.split(".")[0] in {"polyc", *ALLOWED} and n not in allowed and f.name != "child.py"
    ]
    assert not wrong


def test_nothing_is_imported_by_a_name_that_only_the_repository_has() -> None:
    files = [
        f for folder in (*ALLOWED, "polyc", "tests", "examples", "benchmarks") for f in (ROOT / folder).rglob("*.py")
    ]
    # Parsing all would take seconds: only those with such a name somewhere behind `from` or `import`.
    names = re.compile(rf"\b(?:from|import)\b[^\n]*(?<!\.)\b(?:{'|'.join(ALLOWED)})\b")
    suspects = [f for f in files if names.search(f.read_text(encoding="utf-8"))]
    assert suspects
    assert [str(f.relative_to(ROOT)) for f in suspects if imported(f) & set(ALLOWED)] == []


def test_names_of_the_public_module() -> None:
    import polyc

    assert sorted(polyc.__all__) == sorted(polyc._MODULE_OF)
    assert all(getattr(polyc, name) is not None for name in polyc.__all__)


@pytest.mark.parametrize("package", ALLOWED)
def test_each_package_imports_without_those_above_it(package: str) -> None:
    loaded = (
        f"import sys, pkgutil, importlib, polyc.{package} as p\n"
        "[importlib.import_module(m.name) for m in pkgutil.iter_modules(p.__path__, p.__name__ + '.')]\n"
        "print(*sorted({m.split('.')[1] for m in sys.modules if m.startswith('polyc.')}))"
    )
    out = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(out.stdout.split()) <= ALLOWED[package] | {"graph_driver"}  # its wiring only: see below
    if package != "graph_driver":
        code = f"import sys, polyc.{package}; print(*sorted(m for m in sys.modules if 'graph_driver.' in m))"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert out.stdout.split() == ["polyc.graph_driver.wiring"]


def test_files_named_after_the_packages_change_nothing(tmp_path: Path) -> None:
    """A user's own `scheduler.py`, `poly.py` or `emit/` beside the script; compiled models start processes, too."""
    for name in ("scheduler", "poly", "frontend_dsl", "graph_driver"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('the user's own file')")
    (tmp_path / "emit").mkdir()
    (tmp_path / "emit" / "__init__.py").write_text("raise ImportError('the user's own folder')")
    (tmp_path / "poly.py").write_text("mine = 1")
    (tmp_path / "script.py").write_text(
        "import numpy as np, onnx, poly, polyc\n"
        "from onnx import TensorProto, helper as h\n"
        "N = polyc.dims('N')\n"
        "@polyc.op\n"
        "def twice(X: polyc.f32[N]) -> polyc.f32[N]:\n"
        "    Y = polyc.empty((N,), polyc.f32)\n"
        "    for i in range(N):\n"
        "        Y[i] = X[i] * 2.0\n"
        "    return Y\n"
        "x = np.arange(4, dtype='f')\n"
        "graph = h.make_graph([h.make_node('Relu', ['x'], ['y'])], 'g',\n"
        "    [h.make_tensor_value_info('x', TensorProto.FLOAT, [4])],\n"
        "    [h.make_tensor_value_info('y', TensorProto.FLOAT, [4])])\n"
        "model = h.make_model(graph, opset_imports=[h.make_opsetid('', 17)], ir_version=8)\n"
        "if __name__ == '__main__':\n"
        "    print(twice(x), twice.scop().schedule().split('i', 2).trace is not None, poly.mine)\n"
        "    print(polyc.compile_model(model)({'x': x})['y'])\n"
    )
    out = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path)
    assert (out.returncode, out.stdout.splitlines()) == (0, ["[0. 2. 4. 6.] True 1", "[0. 1. 2. 3.]"]), out.stderr


def test_poly_needs_only_isl_and_numpy() -> None:
    third = {n for f in (ROOT / "poly").rglob("*.py") for n in imported(f)} - set(sys.stdlib_module_names)
    assert third <= {"polyc.poly", "islpy", "numpy", "ml_dtypes"}


def test_no_back_end_is_loaded_by_import_polyc() -> None:
    code = "import sys, polyc; print(sorted(m for m in sys.modules if m in ('onnx', 'llvmlite', 'cgen', 'rich')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by base name: a second one is not collected, whatever its folder."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
