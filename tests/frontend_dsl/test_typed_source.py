"""Operators without a file: at a prompt, from `python -` and `python -c`, from a text; and what cannot be found."""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyc import DslError, Operator, dims, empty, f32, op

ROOT = Path(__file__).resolve().parents[2]
N = dims("N")
weight = 2.0

SCRIPT = '''
import numpy as np  # an array package
from polyc import dims, empty, f32, op, where
N = dims("N")
bias = 10.0

def helper(x):
    return -x * 2.0

pair = {"one": lambda v: v + 1.0, "two": (lambda v:
    v * 2.0)}

def make(scale):
    @op
    def scaled(X: f32[N], *, low=0.0) -> f32[N]:
        """Words: one,
        two."""
        Y = empty((N,), f32)
        for i in range(N):  # one
            total = (X[i] +
                     scale)

            if total > low and not total == 5.0:
                Y[i] = total
            elif total < -1e3: Y[i] = 0.0
            else:
                Y[i] = -1.0
        return Y

    return scaled

@op(reassociate=False)
def f(X: f32[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = helper(X[i]) + bias + pair["two"](0.0 * X[i]) + pair["one"](-1.0)
        Y[i] = Y[i] * 2.0
        Y[i] = Y[i] * 2.0
        Y[i] = Y[i] * 2.0
    return Y

x = np.arange(4, dtype="f")
print(f(x).tolist(), f.python(x).tolist())
g = make(1.0)
print(g(x).tolist(), g(x - 2).tolist())
'''
PRINTED = ["[80.0, 64.0, 48.0, 32.0] [80.0, 64.0, 48.0, 32.0]", "[1.0, 2.0, 3.0, 4.0] [-1.0, -1.0, 1.0, 2.0]"]
RIGHT = """helper(X[i]) + bias + pair["two"](0.0 * X[i]) + pair["one"](-1.0)"""
WRONG = SCRIPT.replace(RIGHT, "nothing(X[i])").replace("x = np", "f.scop()\nx = np")


def environment(unbuffered: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}


def run(way: str, text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    how: dict[str, Any] = {"capture_output": True, "text": True, "cwd": tmp_path}
    if way == "file":
        (tmp_path / "script").write_text(text)
        with (tmp_path / "script").open() as stream:
            return subprocess.run([sys.executable, "-"], stdin=stream, env=environment(""), **how)
    if way == "-c":
        return subprocess.run([sys.executable, "-c", text], env=environment(""), **how)
    return subprocess.run([sys.executable, "-"], input=text, env=environment("1" if way == "unbuffered" else ""), **how)


@pytest.mark.parametrize("way", ["file", "pipe", "unbuffered", "-c"])
def test_a_script_that_is_no_file(way: str, tmp_path: Path) -> None:
    done = run(way, SCRIPT, tmp_path)
    assert done.stdout.splitlines() == PRINTED, done.stderr


@pytest.mark.parametrize("way", ["file", "pipe"])
def test_errors_name_the_line(way: str, tmp_path: Path) -> None:
    done = run(way, WRONG, tmp_path)
    line = WRONG.splitlines().index("        Y[i] = nothing(X[i])") + 1
    assert f'File "<stdin>", line {line}' in done.stderr and "unknown name nothing" in done.stderr
    assert "    Y[i] = nothing(X[i])\n" in done.stderr and "^" in done.stderr


def typed(lines: list[str], *options: str) -> str:
    """What a Python prompt on a terminal shows for these lines."""
    pty = pytest.importorskip("pty")
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(environment(""), TERM="dumb")
        os.execv(sys.executable, [sys.executable, "-q", *options])
    shown = b""

    def until(wanted: bytes, seconds: float) -> None:
        nonlocal shown
        end = time.monotonic() + seconds
        while wanted not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    shown += os.read(terminal, 65536)
                except OSError:
                    return

    until(b">>> ", 20)
    for line in [*lines, "print('do' + 'ne')"]:
        os.write(terminal, f"{line}\n".encode())
    until(b"\r\ndone", 60)
    os.write(terminal, b"exit()\n")
    os.close(terminal)
    os.waitpid(process, 0)
    return shown.decode().replace("\r\n", "\n")


def test_at_a_prompt() -> None:
    lines = [line for line in SCRIPT.splitlines() if line]
    out: list[str] = []
    for line in lines:  # an empty line ends a statement there
        if line[0] != " " and out and out[-1][:1] == " ":
            out.append("")
        out.append(line)
    shown = typed(out)
    assert all(line in shown for line in PRINTED), shown


def test_a_helper_at_a_prompt() -> None:
    """Its lines are only in the history, which has no empty lines and none twice."""
    helper = [
        "def helper(x):",
        '    """One.',
        "",
        '    Two."""',
        "    x = x * 2.0",
        "    x = x * 2.0",
        "    return x",
        "",
    ]
    program = ["@op", "def f(X: f32[N]) -> f32[N]:", "    Y = empty((N,), f32)", "    for i in range(N):",
               "        Y[i] = helper(X[i])", "    return Y", ""]  # fmt: skip
    start = ["import numpy as np", "from polyc import dims, empty, f32, op", "N = dims('N')"]
    shown = typed([*start, *helper, "1 + 1", *program, "print(f(np.ones(3, 'f')).tolist())"])
    assert "[4.0, 4.0, 4.0]" in shown, shown


def test_what_nobody_kept_is_refused_with_a_way_out(request: pytest.FixtureRequest) -> None:
    gc.disable()  # no collection has to take the tokens away
    request.addfinalizer(gc.enable)
    scope: dict[str, Any] = {"op": op, "f32": f32, "N": N, "empty": empty}
    text = "@op\ndef f(X: f32[N]) -> f32[N]:\n    Y = empty((N,), f32)\n"
    text += "    for i in range(N):\n        Y[i] = X[i] + 1.0\n    return Y\n"
    exec(text, scope)  # the parser's tokens are there while it runs
    assert scope["f"](np.ones(2, np.float32)).tolist() == [2, 2]
    exec(compile(text, "<nowhere>", "exec"), scope)
    with pytest.raises(DslError, match=r"the source of f is not available") as caught:
        scope["f"].scop()
    assert "give its text to op.from_source" in str(caught.value)


# ---- op.from_source ------------------------------------------------------------------------------

TEXT = """
    def f(X: f32[N]) -> f32[N]:
        Y = empty((N,), f32)
        for i in range(N):
            Y[i] = X[i] * weight
        return Y
"""


def test_names_mean_what_they_do_at_the_call() -> None:
    global weight
    f = op.from_source(TEXT)
    x = np.arange(3, dtype=np.float32)
    assert isinstance(f, Operator) and f.name == "f" and repr(f) == "<operator f(X)>"
    assert f(x).tolist() == f.python(x).tolist() == [0, 2, 4]
    weight = 3.0
    try:
        assert f(x).tolist() == f.python(x).tolist() == [0, 3, 6]
    finally:
        weight = 2.0
    M, weight_here = dims("M"), 5.0
    g = op.from_source(TEXT.replace("weight", "weight_here").replace("N", "M"))
    assert M.names() == ("M",) and g(x).tolist() == [0, weight_here, 2 * weight_here]
    h = op.from_source(TEXT, scope={"N": N, "weight": 7.0})
    assert h(x).tolist() == [0, 7, 14]


def test_a_text_may_define_all_that_it_needs() -> None:
    text = textwrap.dedent("""
        from __future__ import annotations
        from math import *
        from polyc import op, f32, dims, empty
        N = dims("N")
        half = cos(0.0) / 2
        def helper(x):
            return x * half
        @op(reassociate=False)
        def f(X: f32[N]) -> f32[N]:
            Y = empty((N,), f32)
            for i in range(N):
                Y[i] = helper(X[i])
            return Y
    """)
    f = op.from_source(text, scope={})
    assert f(np.ones(2, np.float32)).tolist() == [0.5, 0.5] and not f.reassociate
    assert op.from_source(text, "f").name == "f"


def test_errors_in_a_text() -> None:
    for text, message in {
        "def f(X: f32[N]):\n    X[0] = = 1": "<source>:2:12: the text is no Python: invalid syntax",
        "def f(X: f32[Q]):\n    return X": "<source>:1:0?.*the text cannot be run: NameError: name 'Q' is not defined",
        "def f(X): return X": "<source>:1:7: the parameter X has no type",
        "x = 1": "the text defines no function",
        "def f(X: f32[N]): pass\ndef g(X: f32[N]): pass": r"the text defines several functions \(f, g\)",
        TEXT.replace("X[i] * weight", "X[i] * heavy"): "<source>:5:23: unknown name heavy",
    }.items():
        with pytest.raises(DslError, match=message):
            op.from_source(text).scop()
    with pytest.raises(DslError, match="no function g .it has: f"):
        op.from_source(TEXT, name="g")
