"""Two versions beside each other (`benchmarks/same_code`): what counts as the same code, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from benchmarks.cases import make_case
from benchmarks.same_code.machine_code import fingerprint, sections
from benchmarks.same_code.page import page, slower
from benchmarks.same_code.versions import Task, Version, compared
from polyc import dims, empty, exp, f32, op
from polyc.emit.compile import compile_step
from polyc.emit.targets import get
from polyc.poly.texts.parser import parse_scop
from polyc.poly.texts.printer import exact_scop
from polyc.scheduler.schedule import Schedule

ROOT = Path(__file__).resolve().parents[1]
N = dims("N")


@op
def grown(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = exp(X[i]) * 0.3
    return Y


def code(symbol: str, factor: float = 0.3, lanes: int = 8) -> bytes:
    """An object file of `grown` called `symbol`: it has constants and relocations."""
    s = grown.scop(N=64).schedule().vectorize("i", lanes)
    scop = s.scop
    if factor != 0.3:
        scop = parse_scop(exact_scop(scop).replace("0.3", str(factor)))
        s = Schedule.start(scop).vectorize("i", lanes)
    return compile_step(s.scop, s.tree, get("x86-64-v3"), "llvm", symbol, ())[2].image


def test_the_kernels_name_is_left_out_and_all_else_counts() -> None:
    names = "polyc_00", "polyc_ff"
    first, second = (fingerprint(code(n), n) for n in names)
    assert first == second and code(names[0]) != code(names[1])
    assert fingerprint(code("polyc_00", lanes=4), "polyc_00") != first
    assert fingerprint(code("polyc_00", factor=0.7), "polyc_00") != first
    assert {s.name for s in sections(code("polyc_00"))} >= {".text", ".rela.text", ".symtab"}


def test_only_object_files_are_read() -> None:
    with pytest.raises(ValueError, match="no little-endian ELF64 file"):
        sections(b"MZ" + bytes(100))


def test_a_version_has_the_same_code_as_itself() -> None:
    """Two processes of this version; a case that neither compiles is said to be refused by both."""
    node = helper.make_node("Relu", ["X"], ["Y"])
    case = make_case("relu", "memory", [node], {"X": np.ones((4, 8), np.float32)}, {}, (4, 8), 32.0)
    old, new = Version(ROOT), Version(ROOT)
    try:
        row = compared(Task(case.name, case.family, case.model, case.inputs), old, new)
        assert row["same"] and row["kernels"] == [1, 1] and row["launches"] == [1, 1] and "runs" not in row
        assert all(s > 0 for s in (*row["seconds"], *row["schedule"]))
        assert old.ask("call", times=2)["seconds"] > 0
        wrong = compared(Task("wrong", "memory", ROOT / "README.md", case.inputs), old, new)
        assert all(wrong["errors"]) and not slower([wrong])
    finally:
        old.close()
        new.close()


def made_up(name: str, **other: Any) -> dict[str, Any]:
    """A row of the same code, but for `other`."""
    both = {n: [1, 1] for n in ("kernels", "launches", "arena", "seconds", "schedule", "host")}
    return {"case": name, "family": "gemm", "commits": ["old1", "new1"], **both, "equal": 1, "same": True, **other}


def test_what_is_slower_and_how_it_is_told() -> None:
    rows = [made_up(f"case {k}") for k in range(40)]
    assert slower(rows) == []
    rows.append(made_up("slow", same=False, equal=0, runs=[(0.8, 0.7), (0.85, 0.8), (0.7, 0.9)], unchecked=False))
    assert slower(rows) == ["slow: 0.80"]
    rows.append(made_up("busy", same=False, equal=0, runs=[(0.95, 0.7), (1.0, 0.9), (0.7, 0.9)], unchecked=True,
                        launches=[1, 2]))  # fmt: skip
    assert slower(rows) == ["slow: 0.80"]
    refused = {"case": "gone", "family": "gemm", "commits": ["old1", "new2"], "errors": ["", "BuildError: no"]}
    assert slower([*rows, refused]) == ["gone: BuildError: no", "slow: 0.80"]
    text = page([*rows, refused])
    assert "old1 (old) beside new1, new2 (new)" in text
    assert "| gemm | 42 | 40 | 42 | 40 | 0.993 | 42.0 | 42.0 | 1.00 |" in text
    assert "| slow | 1 | 0 | 1 | 1 | 0.80 / 0.70, 0.85 / 0.80, 0.70 / 0.90 | no |" in text
    assert "| busy | 1 | 0 | 1 -> 2 | 1 | 0.95 / 0.70, 1.00 / 0.90, 0.70 / 0.90 | yes |" in text
    assert "| gone | compiles | BuildError: no |" in text
    several = [made_up(f"case {k}", same=False, runs=[(0.95, 0.9)], unchecked=False) for k in range(3)]
    assert slower(several) == ["geometric mean of gemm: 0.950"]
