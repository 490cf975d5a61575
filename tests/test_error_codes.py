"""Every kind of error has a code of its own, and every code a page."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sources import statements

import polyc
from polyc.graph_driver.cli import main
from polyc.graph_driver.explaining.error_pages import error_pages, markdown, page_of
from polyc.poly.errors import ArgumentError, PolycError

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")


def classes() -> dict[str, tuple[list[str], list[str]]]:
    """Of every class in the product: the names of its bases, and the codes that its body gives."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for file in (f for folder in FOLDERS for f in (ROOT / folder).rglob("*.py")):
        for node in statements(file):
            if not isinstance(node, ast.ClassDef):
                continue
            codes = []
            for line in node.body:
                targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
                value = getattr(line, "value", None)
                if any(isinstance(t, ast.Name) and t.id == "code" for t in targets) and isinstance(value, ast.Constant):
                    codes.append(value.value)
            found[node.name] = ([b.id for b in node.bases if isinstance(b, ast.Name)], codes)
    return found


def errors() -> dict[str, list[str]]:
    """The codes of `PolycError` and of every class below it, by the class's name."""
    known = classes()

    def below(name: str) -> bool:
        return name == "PolycError" or any(below(b) for b in known.get(name, ([], []))[0])

    return {name: codes for name, (_, codes) in known.items() if below(name) and not name.startswith("_")}


def test_every_error_has_a_code_and_a_page() -> None:
    found = errors()
    assert len(found) >= 35 and {"DslError", "NotSymbolic", "ShimError"} <= {*found}
    assert [n for n, codes in found.items() if len(codes) != 1] == []
    assert sorted(c for codes in found.values() for c in codes) == sorted(error_pages())  # each once
    for code, page in error_pages().items():
        assert found[page.error] == [code] and len(page.meaning) > 30 and len(page.remedy) > 15
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == markdown(error_pages().values())


@polyc.op(reassociate=False)
def running(X: polyc.f32[8]) -> polyc.f32[8]:
    Y = polyc.zeros(8, polyc.f32)
    for i in range(1, 8):
        Y[i] = Y[i - 1] + X[i]
    return Y


@pytest.mark.parametrize(("wrong", "error"), [
    (lambda: running(np.zeros(9, np.float32)), "ArgumentError"),
    (lambda: running.scop().schedule().reverse("i"), "IllegalSchedule"),
    (lambda: running.scop().schedule().reverse("nothing"), "ScheduleError"),
    (lambda: running.compile(target="z80"), "BuildError"),
    (lambda: polyc.compile_model(b"nonsense"), "ModelError"),
    (lambda: polyc.compile_model("x.onnx", reproducible=True, fast_math=True), "OptionError"),
    (lambda: page_of("P999"), "ArgumentError"),
])  # fmt: skip
def test_errors_carry_their_codes(wrong: Callable[[], Any], error: str) -> None:
    with pytest.raises(PolycError) as caught:
        wrong()
    assert page_of(caught.value.code).error == type(caught.value).__name__ == error
    assert pickle.loads(pickle.dumps(caught.value)).code == caught.value.code


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-error", "p202"]) == 0
    assert capsys.readouterr().out.startswith("P202 IllegalSchedule\n\nA step would change results")
    assert main(["explain-error"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(error_pages())
    assert main(["explain-error", "P999"]) == 1 and "there is no error 'P999'" in capsys.readouterr().err
    assert ArgumentError.code == "P002"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_on_a_terminal_the_code_stands_behind_the_line() -> None:
    import os
    import pty

    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "polyc.graph_driver.cli", "run", "no/such/file.onnx"]
    assert subprocess.run(command, stderr=writer, stdout=subprocess.DEVNULL, timeout=60).returncode == 1
    os.close(writer)
    said = os.read(reader, 10_000).decode()
    os.close(reader)
    assert "polyc explain-error P" in said.splitlines()[-1]
