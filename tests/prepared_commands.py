"""Commands of tests in processes of their own, forked from one that has the compiler imported.

`run` is `subprocess.run([sys.executable, *words], capture_output=True, text=True)` but for the second that each process
takes for its imports; a test of what a command imports, or when, starts Python itself.
"""

from __future__ import annotations

import atexit
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from pathlib import Path

LONGEST = 300.0


def run(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = LONGEST
) -> subprocess.CompletedProcess[str]:
    """`python WORDS`: a script, `-m` and a module, or `-c` and a program; then arguments. Raises `TimeoutExpired`."""
    from tests.prepared_compilers import PREPARED

    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        around = dict(os.environ if env is None else env)
        started = PREPARED.fork(output.fileno(), around, errors.fileno(), str(cwd or ""), words)
        try:
            code = started.wait(timeout)
        except subprocess.TimeoutExpired:
            started.kill()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


def run_words(words: list[str]) -> int:
    """Do in this process, which has been forked for it, what `python WORDS` does; its exit code."""
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    sys.path[:] = [*paths, *(p for p in sys.path if p not in paths)]
    code = 0
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path.insert(0, os.getcwd())
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            sys.path.insert(0, "")
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(words[1], "<string>", "exec"), main.__dict__)
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).resolve().parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as at the end of Python: threads end, then what `atexit` has
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code
