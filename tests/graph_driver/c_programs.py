"""Building and running exported C: strictly standard, all warnings errors, through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from polyc.emit.c import cc
from polyc.graph_driver.running.model import Model

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")


def build(folder: Path, *flags: str, output: str = "model.so", main: bool = False) -> Path:
    """The exported sources in `folder` as a shared library, or with `main` as the example program."""
    compiler = cc.find_compiler()
    assert compiler is not None
    sources = [str(p) for p in sorted(folder.glob("*.c")) if main or p.name != "main.c"]
    kind = () if main else ("-shared", "-fPIC")
    done = subprocess.run(
        [compiler, *STRICT, *(flags or ("-O2",)), *kind, *sources, "-o", str(folder / output), "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
    return folder / output


def call(library: Path, name: str, model: Model, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of `NAME_run`; the outputs' memory is poisoned before, guards after it stay untouched."""
    inputs = [np.ascontiguousarray(feeds[n]) for n in model.plan.inputs]
    outputs, guards = [], []
    like = model(feeds)
    for n in model.plan.outputs:
        raw = np.full(like[n].nbytes + 64, 0xA5, np.uint8)
        guards.append(raw[like[n].nbytes :])
        outputs.append(raw[: like[n].nbytes].view(like[n].dtype).reshape(like[n].shape))
    run = getattr(ctypes.CDLL(str(library)), f"{name}_run")
    assert not run(*(a.ctypes.data_as(ctypes.c_void_p) for a in (*inputs, *outputs)))
    assert all((g == 0xA5).all() for g in guards)
    return dict(zip(model.plan.outputs, outputs, strict=True))
