"""The figures of one network: each from processes of their own, versions in turns, the least of the runs."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.first_answer.processes import Ended, plain_environment, ran

CHILD = Path(__file__).with_name("child.py")
KINDS = ("cold", "warm", "load")


@dataclass(frozen=True)
class Subject:
    """A network with inputs; `bind` are inputs fixed at compile time."""

    name: str
    family: str
    path: Path
    inputs: Mapping[str, np.ndarray] = field(repr=False)
    bind: Mapping[str, Any] = field(default_factory=dict)


def measured(subject: Subject, roots: Sequence[Path], runs: int, bound: bool, memory: bool) -> dict[str, Any]:
    """The row of a network: for each checkout of `roots` seconds by what was measured, the least of the runs.

    `cold`: compiled with an empty cache, `answer` with the first call, `processors` of all processes; `warm`: again;
    `load`: of the compiled directory, or of one for the sizes of the inputs where that for all sizes excludes them;
    `memory`: bytes of all processes at the peak. `bound`: sizes are those of the inputs, else what the file leaves free
    is. `onnxruntime`: seconds of its session.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = _given(subject, folder, bound)
        found: list[dict[str, float]] = [{} for _ in roots]
        errors = [""] * len(roots)
        for run in range(runs + memory):
            order = range(len(roots)) if run % 2 else reversed(range(len(roots)))
            for k in order:
                if not errors[k]:
                    errors[k] = _one_run(found[k], given, roots[k], folder / f"{run}-{k}", run == runs)
        session = _least(_asked("session", given, plain_environment(roots[-1], folder)) for _ in range(runs))
    row = {"network": subject.name, "family": subject.family, "megabytes": subject.path.stat().st_size / 1e6}
    return row | {"found": found, "errors": errors, "onnxruntime": session}


def _given(subject: Subject, folder: Path, bound: bool) -> dict[str, Any]:
    np.savez(folder / "feeds.npz", **subject.inputs)
    sizes = {name: list(x.shape) for name, x in subject.inputs.items()}
    bind = {name: np.asarray(value).tolist() for name, value in subject.bind.items()}
    given = {"model": str(subject.path), "feeds": str(folder / "feeds.npz"), "bind": bind}
    return given | {"sizes": sizes, "shapes": sizes if bound else {}}


def _one_run(found: dict[str, float], given: Mapping[str, Any], root: Path, folder: Path, watch: bool) -> str:
    """Add the figures of one run to those found; a line when it fails. `watch`: look at the memory, at nothing else."""
    environment = plain_environment(root, folder / "cache")
    saved = {**given, "save": str(folder / "saved")}
    for kind in ("cold",) if watch else KINDS:
        asked = saved if kind != "cold" else given
        ended = _ended("load" if kind == "load" else "compile", asked, environment, watch)
        if ended.code and kind == "load":  # the directory for all sizes excludes these: one for them
            _ended("compile", {**saved, "shapes": saved["sizes"], "save": saved["save"] + "-bound"}, environment)
            ended = _ended("load", {**saved, "save": saved["save"] + "-bound"}, environment)
        if ended.code:
            return f"{kind}: {(ended.err.strip().splitlines() or ['no message'])[-1]}"
        said = json.loads(ended.out.splitlines()[-1])
        figures = {kind: said["seconds"], f"{kind} answer": said["answer"]}
        figures[f"{kind} processors"] = ended.processors - said["before"] - said["after"]
        _lessen(found, {"memory": ended.peak} if watch else figures)
        if "unsaved" in said:
            return ""
    return ""


def _lessen(found: dict[str, float], figures: Mapping[str, float]) -> None:
    for name, value in figures.items():
        found[name] = min(found.get(name, value), value)


def _ended(what: str, given: Mapping[str, Any], environment: Mapping[str, str], watch: bool = False) -> Ended:
    command = [sys.executable, "-P", str(CHILD), what, json.dumps(given)]
    return ran(command, environment, watch)


def _asked(what: str, given: Mapping[str, Any], environment: Mapping[str, str]) -> float | None:
    ended = _ended(what, given, environment)
    return None if ended.code else float(json.loads(ended.out.splitlines()[-1])["seconds"])


def _least(values: Any) -> float | None:
    return min((v for v in values if v is not None), default=None)
