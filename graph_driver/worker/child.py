"""Starting one of polyc's own modules as a process beside this one."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import NoReturn


def module_command(module: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment that run `module` with this very polyc, wherever it lies.

    What lies in the working directory is not put on the import path (`-P`): a user's own `onnx` or `queue`
    there must not be taken for a library.
    """
    import polyc

    place = str(Path(polyc.__file__).parent.parent)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([place, *filter(None, [environment.get("PYTHONPATH")])])
    return [sys.executable, "-P", "-m", module], environment


def socket_on_stdin() -> socket.socket:
    """In the process itself: the socket to its parent. Stdin is empty then; what is printed goes where errors go."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return control


def say_why_not(control: socket.socket, error: Exception) -> NoReturn:
    """End, and tell the parent in one line why there is nothing to run: `broken WHY`."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    control.sendall(f"broken {text}\n".encode(errors="replace"))
    sys.exit(1)
