"""A process beside this one that compiles a whole model, and hands back its compiled directory.

It gets a pickled request on its standard input, from nobody but the process that started it, and answers in one line of
JSON: an error, or that the directory is there. It ends with its parent: when its input closes, it ends itself, and its
workers end with it (`polyc.graph_driver.worker.forking`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from polyc.graph_driver.options import FULL
from polyc.graph_driver.worker.child import module_command
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    import onnx

    from polyc.graph_driver.options import CompileOptions

MODULE = "polyc.graph_driver.tiers"
MODEL, ERRORS = "model", "errors"
"""What lies in the folder that both processes know: the compiled directory, and what the process wrote as errors."""


@dataclass(frozen=True)
class Answer:
    """The compiled directory, or why there is none: an `error`, or sizes must be `numbers` of each call because of what
    stands there."""

    folder: Path
    error: str = ""
    numbers: str = ""


class Background:
    """The process; whoever forgets to `stop` it has `stop` called at the end of the program."""

    def __init__(self, source: Path | bytes | onnx.ModelProto, options: CompileOptions) -> None:
        """Start it. Raises `OSError`: it cannot be started; `TypeError`, `pickle.PicklingError`: the options cannot
        be sent."""
        self._request = pickle.dumps((source, replace(options, tier=FULL, progress=None)))
        self.folder = Path(tempfile.mkdtemp(prefix="polyc-tier-"))
        self._owner = os.getpid()
        self._stopped = False
        command, environment = module_command(MODULE)
        try:
            with (self.folder / ERRORS).open("wb") as errors:
                self._process = subprocess.Popen(
                    [*command, str(self.folder)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment,
                    start_new_session=True,  # Ctrl-C is for the parent, which ends it itself
                )  # fmt: skip
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def watch(self, arrived: Callable[[Answer], None]) -> None:
        """Call `arrived` from another thread with the answer; not any more after `stop`."""
        threading.Thread(target=self._serve, args=(arrived,), name="polyc-tier", daemon=True).start()

    def _serve(self, arrived: Callable[[Answer], None]) -> None:
        answer = self._answer()
        if not self._stopped:
            arrived(answer)
        self.stop()
        for pipe in filter(None, (self._process.stdin, self._process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()

    def _answer(self) -> Answer:
        """What the process says, or why it says nothing."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        line = b""
        with contextlib.suppress(OSError, ValueError):  # it died, or was stopped
            process.stdin.write(self._request)
            process.stdin.flush()
            self._request = b""
            line = process.stdout.readline()
        if line:
            said = json.loads(line)
            return Answer(self.folder / MODEL, str(said["error"]), str(said["numbers"]))
        code = process.wait()
        said = ""
        with contextlib.suppress(OSError):
            said = (self.folder / ERRORS).read_text(errors="replace").strip().rpartition("\n")[2]
        died = f"the process that compiles it died (exit code {code}{': ' if said else ''}{said})"
        return Answer(self.folder / MODEL, died)

    def stop(self) -> None:
        """End the process and its workers (also in the middle of their work); once is enough. A forked process has
        none to end."""
        if os.getpid() != self._owner or self._stopped:
            return
        self._stopped = True
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
