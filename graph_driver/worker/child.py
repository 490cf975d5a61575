"""Starting one of polyc's own modules as a process beside this one."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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
