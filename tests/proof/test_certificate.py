"""Certificates of loops and their checker, which knows nothing of polyc."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loop_mutants import mutants
from mutant_oracle import Case, IllFormed, fault
from proof_cases import by_hand, of_library, of_polybench, of_random_programs, sampled

from examples import polybench
from polyc import dims, f64, i64, inout, op
from polyc.emit.proof.certificate import certificate
from polyc.emit.proof.checker.check import check
from polyc.emit.proof.checker.text import Rejected
from polyc.poly.errors import BuildError

CHECKER = Path(__file__).parents[2] / "emit" / "proof" / "checker"


def holds(case: Case) -> None:
    seen = check(certificate(case.scop, case.fn))
    assert seen["sizes"], case.name


def test_certificates_hold() -> None:
    for case in by_hand():
        holds(case)
    for case in of_random_programs(range(3)):
        holds(case)


@pytest.mark.long
def test_more_certificates_hold() -> None:
    for cases in (of_polybench(list(polybench.MODULES), 0), of_library(), of_random_programs(range(3, 150))):
        for case in cases:
            holds(case)


def bugs_are_rejected(each: int, seed: int) -> int:
    """Wrong loops have no certificate that holds."""
    wrong = 0
    for case in by_hand():
        for m in sampled(case, each, seed):
            try:
                why = fault(case, m.fn, "mark" in m.kind)
            except IllFormed:
                continue
            if why is not None:
                wrong += 1
                with pytest.raises(Rejected):
                    check(certificate(case.scop, m.fn))
                    pytest.fail(f"{case.name}: {m.kind}, {m.what}: {why}")
    return wrong


def test_seeded_bugs_have_no_certificate() -> None:
    assert bugs_are_rejected(6, seed=1) >= 30


@pytest.mark.long
def test_more_seeded_bugs_have_no_certificate() -> None:
    assert bugs_are_rejected(60, seed=2) >= 250


def tampered(change: Any) -> str:
    case = next(c for c in by_hand() if c.name == "matmul: packed panels")
    data = json.loads(certificate(case.scop, case.fn))
    change(data)
    return json.dumps(data)


def replaced(old: str, new: str) -> Any:
    def change(data: dict[str, Any]) -> None:
        assert any(old in line for line in data["loops"])
        data["loops"] = [line.replace(old, new) for line in data["loops"]]

    return change


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda d: None, ""),
        (lambda d: d.update(format="another"), "no certificate of loops that I know"),
        (lambda d: d["instances"].pop(), "not one instance for each store"),
        (lambda d: d["instances"].reverse(), "not affine|do not run the domain"),
        (replaced("range(0, K)", "range(1, K)"), "do not run the domain of S1"),
        (replaced("for k in range(0, K):", "for k in range(0, K):  # parallel"), "S1 may run before or with S1"),
        (replaced("f64(0.0)", "f64(1.0)"), "S0.* computes another value"),
        (replaced("= B[B_buf_in0", "= B[B_buf_in0 - B_buf_in0"), "S1.* computes another value"),
        (replaced(" + A", " - A"), "S1.* computes another value"),
        (replaced("f64[K, 4]", "f64[K, 3]"), "outside"),
        (lambda d: d["arrays"]["A"].update(shape=["M", "K - 1"]), "S1 leaves the array 'A'"),
    ],
)
def test_a_changed_certificate_does_not_hold(change: Any, text: str) -> None:
    if not text:
        check(tampered(change))
        return
    with pytest.raises(Rejected, match=text):
        check(tampered(change))


def test_the_checker_imports_nothing_of_polyc() -> None:
    for path in CHECKER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            assert all(n.split(".")[0] in {*sys.stdlib_module_names, "islpy"} for n in names), path.name


def test_the_checker_runs_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "checker").mkdir()
    for path in CHECKER.glob("*.py"):
        (tmp_path / "checker" / path.name).write_text(path.read_text())
    (tmp_path / "good.json").write_text(tampered(lambda d: None))
    (tmp_path / "bad.json").write_text(tampered(replaced("range(0, K)", "range(1, K)")))
    command = [sys.executable, "-m", "checker", "good.json", "bad.json", "none.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    good, bad, none = done.stdout.splitlines()
    assert done.returncode == 1 and not done.stderr
    assert good.startswith("good.json: holds (4 stores") and "domain of S1" in bad and "none.json" in none


def test_data_dependent_loops_have_no_certificate() -> None:
    n = dims("N")

    @op
    def rows(P: i64[n + 1], A: inout(f64[n])):
        for i in range(n):
            for k in range(P[i], P[i + 1]):
                A[i] += f64(k)

    case_scop = rows.scop()
    from polyc.emit.lowering.lower import build_loops

    with pytest.raises(BuildError, match="no certificate for 'rows': it has data-dependent loops"):
        certificate(case_scop, build_loops(case_scop, case_scop.tree, "f"))


def test_every_kind_of_mutant_is_in_the_sample() -> None:
    case = next(by_hand())
    assert {m.kind for m in sampled(case, 30, 0)} == {m.kind for m in mutants(case.fn)}
