"""Both versions at work on a case: compiled in two processes, their kernels compared, timed in turns where they
differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from benchmarks.same_code.machine_code import fingerprint
from polyc.emit.cache import MAGIC
from polyc.graph_driver.worker.jobs import COMPILER_PACKAGES

RUNS, ROUNDS = 3, 15
TURN = 5e-3  # seconds: shorter runs are repeated in a turn
ALIKE = ("launches", "host", "arena")
"""What is the same besides the kernels where the code is."""


class Version:
    """A checkout of polyc and its process.

    Raises:
        RuntimeError: the process runs another polyc.
        SystemExit: the folder is no checkout of polyc.
    """

    def __init__(self, root: Path) -> None:
        self.commit = described(root)
        environment = {
            **os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        side = Path(__file__).with_name("side.py")
        command = [sys.executable, "-P", str(side)]
        self._process = subprocess.Popen(
            command, env=environment, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        runs = Path(self.ask("where")["file"]).resolve()
        if not runs.is_relative_to(root):
            raise RuntimeError(f"{runs} runs instead of the polyc in {root}")

    def ask(self, what: str, **given: Any) -> dict[str, Any]:
        """The answer to a request (`side.Side`).

        Raises:
            RuntimeError: the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of a version ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True)
class Task:
    """A case: `model` is a file, or a graph that is written to one."""

    name: str
    family: str
    model: ModelProto | Path
    inputs: Mapping[str, np.ndarray]
    bind: Mapping[str, np.ndarray] = field(default_factory=dict)


def compared(task: Task, old: Version, new: Version) -> dict[str, Any]:
    """A row: kernels, launches and seconds of both versions (old, new), and how fast they run if their code differs.

    `runs`: for each of three runs the ratios of old to new, by minimum and by median of its rounds. `unchecked`:
    whether the code is the same when neither checks accesses.
    """
    with tempfile.TemporaryDirectory() as name:
        given = _written(task, Path(name))
        answers, codes = _compiled(given, Path(name) / "checked", old, new)
        row: dict[str, Any] = {"case": task.name, "family": task.family, "commits": [old.commit, new.commit]}
        errors = [a.get("error", "") for a in answers]
        if any(errors):
            return row | {"errors": errors}
        row |= {n: [a[n] for a in answers] for n in (*ALIKE, "seconds")}
        row |= {"schedule": [round(sum(a["schedule"]), 4) for a in answers], "kernels": [c.total() for c in codes]}
        row |= {"equal": (codes[0] & codes[1]).total(), "same": _same(answers, codes)}
        if not row["same"]:
            row["runs"] = [ratios(old, new) for _ in range(RUNS)]
            row["unchecked"] = _same(*_compiled({**given, "checks": False}, Path(name) / "unchecked", old, new))
    return row


def _written(task: Task, folder: Path) -> dict[str, Any]:
    """The case as files: what a version is asked to compile."""
    path = task.model if isinstance(task.model, Path) else folder / "case.onnx"
    if isinstance(task.model, ModelProto):
        onnx.save(task.model, path)
    np.savez(folder / "feeds.npz", **task.inputs)
    bind = {n: v.tolist() for n, v in task.bind.items()}
    return {"model": str(path), "feeds": str(folder / "feeds.npz"), "bind": bind}


def _compiled(
    given: Mapping[str, Any], folder: Path, old: Version, new: Version
) -> tuple[list[dict[str, Any]], list[Counter[str]]]:
    """Both versions' answers, and their kernels."""
    caches = [folder / "old", folder / "new"]
    answers = [v.ask("compile", **given, cache=str(c)) for v, c in zip((old, new), caches, strict=True)]
    return answers, [kernels(c) for c in caches]


def _same(answers: Sequence[Mapping[str, Any]], codes: Sequence[Counter[str]]) -> bool:
    old, new = answers
    return codes[0] == codes[1] and all(old.get(n) == new.get(n) for n in ALIKE)


def kernels(cache: Path) -> Counter[str]:
    """Fingerprints of the kernels that a cache holds.

    Raises:
        ValueError: an entry that is not read.
    """
    found: Counter[str] = Counter()
    for path in cache.glob("??/*.kernel"):
        raw = path.read_bytes()
        if not raw.startswith(MAGIC):
            raise ValueError(f"{path.name} is no entry of a cache of this format")
        head, _, image = raw[len(MAGIC) + 32 :].partition(b"\n")
        found[fingerprint(image, json.loads(head)["symbol"])] += 1
    return found


def ratios(old: Version, new: Version) -> tuple[float, float]:
    """Old over new, minimum and median of rounds in which both run in turns; seconds of processors."""
    versions = (old, new)
    first = [v.ask("call", times=2)["seconds"] for v in versions]
    calls = max(1, int(TURN / max(*first, 1e-9)))
    times: list[list[float]] = [[], []]
    for turn in range(ROUNDS):
        for k in (0, 1) if turn % 2 else (1, 0):
            times[k].append(versions[k].ask("call", times=calls)["seconds"])
    least, middle = ([f(t) for t in times] for f in (min, median))
    return round(least[0] / least[1], 3), round(middle[0] / middle[1], 3)


def described(root: Path) -> str:
    """The commit of a checkout, and `+` where the compiler has changes since.

    Raises:
        SystemExit: it is no checkout of polyc.
    """
    if not (root / "polyc" / "__init__.py").exists():
        raise SystemExit(f"{root} is no checkout of polyc")

    def git(*what: str) -> str:
        return subprocess.run(["git", "-C", str(root), *what], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", *COMPILER_PACKAGES)
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")
