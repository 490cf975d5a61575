"""What `import polyc` and a first call load: numbers of modules and their names, since seconds vary."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")

MATMUL = """
import numpy as np
from polyc import dims, empty, f32, grid, op

M, N, K = dims("M N K")


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


a = np.ones((300, 200), np.float32)
assert (matmul(a, np.ones((200, 100), np.float32)) == 200).all()
"""


def loaded(program: str, folder: Path, beside: str = "") -> set[str]:
    """The modules that a program loads, from a file and with an empty cache, beyond those of another program."""
    found = []
    for text in (program, beside):
        path = folder / "program.py"
        path.write_text(f"{text}\nimport json, sys\nprint(json.dumps(list(sys.modules)))\n", encoding="utf-8")
        environment = {**os.environ, "POLYC_CACHE": str(folder / "cache")}
        done = subprocess.run(
            [sys.executable, str(path)], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        found.append(set(json.loads(done.stdout)))
    return found[0] - found[1]


def test_importing_polyc_imports_next_to_nothing(tmp_path: Path) -> None:
    modules = loaded("import polyc", tmp_path)
    assert not modules & {"numpy", "islpy", "llvmlite", "onnx", "ml_dtypes"}
    assert len([m for m in modules if m.startswith("polyc")]) <= 10


def test_a_first_matmul_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    modules = loaded(MATMUL, tmp_path, "import numpy")
    forbidden = ("onnx", "importlib.metadata", "email", "asyncio", "multiprocessing", "unittest", "subprocess")
    forbidden += ("polyc.graph_driver.html", "polyc.graph_driver.cli", "polyc.graph_driver.importing")
    forbidden += ("polyc.graph_driver.passes", "polyc.graph_driver.operators", "polyc.emit.gpu.passes")
    assert not [m for m in modules for f in forbidden if m == f or m.startswith(f"{f}.")]
    assert len([m for m in modules if m.startswith("polyc.")]) <= 328
    assert len(modules) <= 413


def test_dataclasses_are_those_of_poly_records() -> None:
    """The standard decorator compiles several functions for each class while its module is imported. The checker of
    certificates knows nothing of polyc."""
    named = re.compile(r"from dataclasses import[^\n]*(?:\([^)]*)?\bdataclass\b")
    standard = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if named.search(text := path.read_text(encoding="utf-8"))  # parsing all takes seconds
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and node.module == "dataclasses"
        and "dataclass" in [n.name for n in node.names]
    ]
    assert sorted(standard) == ["emit/proof/checker/reading.py", "poly/records.py"], "use polyc.poly.records.dataclass"
