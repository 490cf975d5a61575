"""`python -m polyc.graph_driver.tiers FOLDER`: compile one model for the process that started this one.

See `polyc.graph_driver.tiers.background`, which is the other end.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from polyc.graph_driver.graph.defects import INTERNAL
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.running.per_call import PerCall
from polyc.graph_driver.tiers.background import MODEL
from polyc.poly.errors import PolycError
from polyc.poly.hooks import resolve

NICENESS = 10
"""Of the process that compiles, where a system knows such a thing."""


def main() -> None:
    """Read the request, compile, save, answer; end at once when the parent does."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answer
    _give_way()
    source, options = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    error, numbers = compiled_into(Path(sys.argv[1]) / MODEL, source, options)
    json.dump({"error": error, "numbers": numbers}, out)
    out.write("\n")
    out.flush()


def compiled_into(folder: Path, source: Any, options: Any) -> tuple[str, str]:
    """Compile and save; why that cannot be, and why sizes must be the numbers of each call, where they must."""
    try:
        model = resolve("compile_with")(source, options)
        if isinstance(model.running, PerCall):
            return "", model.running.why
        model.save(folder)
    except PolycError as error:
        return one_line(error), ""
    except Exception as error:  # a bug of the compiler: said, never lost
        return f"{INTERNAL}: {type(error).__name__}: {one_line(error)}", ""
    return "", ""


def _give_way() -> None:
    """Calls of the first program come first: a BLAS waits for its threads, and one without a core makes all wait."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as group:  # Linux: a session is a group
        group.write(str(NICENESS))


def _end_with_parent() -> None:
    while os.read(0, 1):  # not by `sys.stdin`, whose lock the end of this process needs
        pass
    os.kill(os.getpid(), signal.SIGKILL)  # its workers end when it does


main()
