"""The one-way flow of DESIGN section 2, and that importing polyc stays light."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "poly": {"poly"},
    "frontend_dsl": {"poly", "frontend_dsl"},
    "scheduler": {"poly", "scheduler"},
    "emit": {"poly", "emit"},
    "graph_driver": {"poly", "frontend_dsl", "scheduler", "emit", "graph_driver"},
}


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports, lazily or not."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_follow_the_one_way_flow(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    forbidden = (set(ALLOWED) | {"polyc"}) - ALLOWED[package]
    wrong = [f"{f.relative_to(ROOT)}: {n}" for f in files for n in imported(f) & forbidden]
    assert not wrong


def test_poly_needs_only_isl_and_numpy() -> None:
    third = {n for f in (ROOT / "poly").rglob("*.py") for n in imported(f)} - set(sys.stdlib_module_names)
    assert third <= {"poly", "islpy", "numpy", "ml_dtypes"}


def test_no_back_end_is_loaded_by_import_polyc() -> None:
    code = "import sys, polyc; print(sorted(m for m in sys.modules if m in ('onnx', 'llvmlite', 'cgen', 'rich')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by base name: a second one is not collected, whatever its folder."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
