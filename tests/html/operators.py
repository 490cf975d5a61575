"""Operators of the examples with the schedules that the pages of the tests show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyc.emit import targets
from polyc.graph_driver.cli.inspect import load_operator
from polyc.graph_driver.html.operator_page import operator_document
from polyc.graph_driver.worker.compile_operator import auto_schedule

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
POLYBENCH = sorted(f.stem for f in (EXAMPLES / "polybench").glob("*.py") if f.stem not in ("__init__", "data"))


def scop_of(name: str) -> Any:
    """`matmul`, or a kernel of PolyBench (three time steps)."""
    path = EXAMPLES / f"{name}.py" if name == "matmul" else EXAMPLES / "polybench" / f"{name}.py"
    op = load_operator(f"{path}:{name}")
    return op.scop(**({"tsteps": 3} if "tsteps" in op.signature.constants else {}))


def tiled_matmul() -> Any:
    """Small tiles, a promoted block, vector and parallel loops."""
    s = scop_of("matmul").schedule().distribute("i")
    i, j, k = s.loops[-3:]
    return s.tile([i, j], [2, 3]).promote("A", f"{j}.out").parallel(f"{i}.out").vectorize(f"{j}.in", 4)


def skewed_jacobi() -> Any:
    """Two statements in skewed tiles."""
    return scop_of("jacobi_1d").schedule().fuse("i", "i_1", shift="auto").skew("i", "t", 2).tile(["t", "i"], [2, 4])


def document(schedule: Any) -> dict[str, Any]:
    """The page's data for a schedule."""
    return operator_document(schedule, targets.get(None), "test", {})


def automatic(name: str) -> Any:
    """The automatic schedule of an example."""
    return auto_schedule(scop_of(name))
