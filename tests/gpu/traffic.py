"""What kernels move, counted by oclgrind: bytes of global and shared memory, barriers, data races."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import back_ends
import numpy as np

from polyc.emit.gpu.program import Recorded, sequence
from polyc.emit.gpu.targets import get
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function
from polyc.poly.scop import Scop

JOB = Path(__file__).with_name("oclgrind_job.py")
SPACES = {"AS1": "global", "AS3": "local"}
WIDTHS = {"f": 4, "d": 8, "l": 8, "m": 8, "i": 4, "j": 4, "s": 2, "t": 2, "c": 1, "h": 1, "a": 1}  # Itanium ABI


@dataclass
class Traffic:
    """Bytes read and written by all threads together, in each memory; barriers count threads that pass one."""

    read: dict[str, int]
    written: dict[str, int]
    barriers: int = 0

    @property
    def moved(self) -> int:
        """Bytes to and from global memory."""
        return self.read["global"] + self.written["global"]


def missing() -> str:
    """ "" when traffic can be counted here, else what is not there."""
    if shutil.which("oclgrind") is None:
        return "no oclgrind (apt-get install oclgrind): the traffic of OpenCL text is not counted"
    return "" if importlib.util.find_spec("pyopencl") else "pyopencl is not installed: oclgrind has nothing to run"


def run(scop: Scop, fn: Function, args: Sequence[Any], *options: str) -> tuple[list[np.ndarray], str]:
    """The updated arrays, and what oclgrind prints about the OpenCL text with these options."""
    target = get("opencl")
    program = to_gpu(fn, target)
    arrays, sizes = back_ends.arrays_of(scop, args)
    with tempfile.TemporaryDirectory(prefix="polyc-") as name:
        folder = Path(name)
        (folder / "launches.json").write_text(Recorded(program, sequence(program, sizes)).to_json())
        for b in fn.buffers:
            np.save(folder / f"{b.name}.npy", np.ascontiguousarray(arrays[b.name]))
        command = ["oclgrind", *options, sys.executable, str(JOB), name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        if done.returncode:
            raise AssertionError(f"oclgrind: {done.stderr[-1500:]}")
        got = [np.load(folder / f"{n}.npy") for n in back_ends.updated(scop)]
    return got, done.stdout + done.stderr


def counted(scop: Scop, fn: Function, args: Sequence[Any]) -> tuple[list[np.ndarray], Traffic]:
    """The updated arrays, and the traffic of all kernels together."""
    got, text = run(scop, fn, args, "--inst-counts")
    return got, parse(text)


def parse(text: str) -> Traffic:
    """The counts that `oclgrind --inst-counts` printed. `vloadN` and `vstoreN` appear there as calls."""
    out = Traffic(*({space: 0 for space in ("global", "local")} for _ in range(2)))
    for kind, space, nbytes in re.findall(r"- (load|store) (global|local) \((\d+) bytes\)", text):
        (out.read if kind == "load" else out.written)[space] += int(nbytes)
    for count, lanes, space, element in re.findall(r"(\d+) - call _Z6vload(\d+)mPU3(AS\d)K(\w)\(", text):
        out.read[SPACES[space]] += int(count) * int(lanes) * WIDTHS[element]
    for count, lanes, element, space in re.findall(r"(\d+) - call _Z7vstore(\d+)Dv\d+_(\w)mPU3(AS\d)\w\(", text):
        out.written[SPACES[space]] += int(count) * int(lanes) * WIDTHS[element]
    out.barriers = sum(int(n) for n in re.findall(r"(\d+) - call _Z7barrierj\(\)", text))
    return out


def instructions(text: str) -> int:
    """All instructions that `oclgrind --inst-counts` counted."""
    return sum(int(n) for n in re.findall(r"^\s*(\d+) - ", text, re.M))
