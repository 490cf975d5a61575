"""Damaged model files, each run by the command line in a child process of its own."""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """Exit code (negative: killed by that signal; 1000: ran out of time) and stderr."""

    code: int
    error: str

    @property
    def acceptable(self) -> bool:
        """Done, or one clear line and exit code 1 or 2."""
        if self.code == 0:
            return not self.error.strip()
        lines = [line for line in self.error.splitlines() if line.strip()]
        return self.code in (1, 2) and len(lines) == 1 and "internal error" not in self.error


def mutate(data: bytes, seed: int) -> bytes:
    """One truncation, or some flipped bits, bytes or runs of bytes."""
    rng = random.Random(seed)
    kind = rng.randrange(5)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    out = bytearray(data)
    if kind == 4:  # a run of bytes, repeated or removed
        start, length = rng.randrange(len(out)), rng.randrange(1, 40)
        middle = out[start : start + length] * 2 if rng.random() < 0.5 else b""
        return bytes(out[:start] + middle + out[start + length :])
    # Flips in the first kilobytes hit the structure; elsewhere mostly weights.
    reach = len(out) if kind == 1 else min(len(out), 3000)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(reach)
        out[place] = out[place] ^ (1 << rng.randrange(8)) if kind != 3 else rng.randrange(256)
    return bytes(out)


def run_child(argv: list[str], seconds: float) -> Outcome:
    """`graph_driver.cli.main(argv)` in a fork of this process, with a time limit."""
    from graph_driver import cli

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        code = 1
        try:
            code = cli.main(argv)
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    text, end = b"", time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            return Outcome(1000, text.decode(errors="replace"))
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        text += chunk
    os.close(reader)
    _, status = os.waitpid(child, 0)
    return Outcome(os.waitstatus_to_exitcode(status), text.decode(errors="replace"))


def attack(source: bytes, folder: Path, seed: int, seconds: float = 60.0) -> Outcome:
    """Run one mutant."""
    path = folder / f"mutant{seed}.onnx"
    path.write_bytes(mutate(source, seed))
    try:
        return run_child(["run", str(path), "--threads", "1"], seconds)
    finally:
        path.unlink()
