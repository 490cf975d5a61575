"""One contender in a process of its own: `python -m benchmarks.polybench.contender TASK.pickle`.

Reads lines: `run COUNT` (restores the arguments and calls the kernel COUNT times in a native loop; answers the least
and the middle of the calls' nanoseconds, without the restoring), `save FOLDER` (writes the results of the last run).
The first line it writes says that it is ready, with the seconds that compiling took.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.polybench.subjects import Subject, subject
from polyc import dims, f32, inout, op
from polyc.emit.run_time import threadpool
from polyc.graph_driver.bench.timing import pin_to_one_core
from polyc.poly.records import dataclass

LOOP = """
#include <stddef.h>
#include <string.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e9 * t.tv_sec + t.tv_nsec;
}
void loop(void (*f)(void *, void *, void *), void *a, void *b, void *c, int n, void **to, void **from,
          size_t *bytes, int repeats, double *spent) {
  for (int r = 0; r < repeats; r++) {
    for (int k = 0; k < n; k++) memcpy(to[k], from[k], bytes[k]);
    double start = now();
    f(a, b, c);
    spent[r] = now() - start;
  }
}
"""
ALIGNMENT = 4096
N = dims("N")


@dataclass(frozen=True)
class Task:
    """What a contender is told: polyc's kernel (`library` None) or a shared object and its `arguments`.

    An argument is a name among the subject's values, or a number and the shape of an array of it; then its type in
    NumPy. `results` are places among the arguments. `pinned`: to one core, where no contender has more threads.
    """

    kernel: str
    size: str
    single: bool
    seed: int
    threads: int
    symbolic: bool
    library: str | None
    arguments: tuple[tuple[Any, str], ...]
    results: tuple[int, ...]
    pinned: bool = False


@dataclass
class Call:
    """A native function, its three pointers, arrays to restore before each call, and those it gives."""

    address: int
    pointers: tuple[Any, Any, Any]
    restored: Sequence[tuple[np.ndarray, np.ndarray]]
    results: Sequence[np.ndarray]
    kept: Any
    seconds: float = 0.0


def placed(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array at the start of a page, of ones bits."""
    dtype = np.dtype(dtype)
    bytes_ = int(np.prod(shape)) * dtype.itemsize
    raw = np.full(bytes_ + ALIGNMENT, 0xFF, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + bytes_].view(dtype).reshape(shape)


def copied(x: Any, dtype: Any = None) -> np.ndarray:
    """A copy at the start of a page."""
    x = np.asarray(x, dtype)
    made = placed(x.shape, x.dtype)
    made[...] = x
    return made


def of_polyc(given: Subject, task: Task) -> Call:
    """polyc's kernel with the automatic schedule, compiled anew."""
    doubled.compile(threads=task.threads)  # modules and LLVM are loaded before the clock runs
    start = time.perf_counter()
    kernel = given.operator.compile(threads=task.threads, **(given.constants if task.symbolic else given.known()))
    seconds = time.perf_counter() - start
    inputs = [np.asarray(given.values[name], kernel.scop.arrays[name].dtype.np) for name in kernel.scop.args]
    bound = kernel.bind(tuple(x.shape for x in inputs))
    arrays = {name: copied(x) for name, x in zip(kernel.scop.args, inputs, strict=True)}
    arrays |= {n: placed(s, kernel.scop.arrays[n].dtype.np) for n, s in zip(kernel.scop.results, bound.results)}
    if kernel.function.checks:
        arrays[kernel.function.buffers[-1].name] = np.zeros(len(kernel.function.checks), np.uint64)
    order = [arrays[b.name] for b in kernel.function.buffers]
    pool = threadpool.handle(kernel.threads) if kernel.threads > 1 else None
    restored = [(arrays[n], x) for n, x in zip(kernel.scop.args, inputs, strict=True) if n in given.updated]
    results = [arrays[n] for n in (*given.updated, *kernel.scop.results)]
    return Call(
        kernel.native.address, (_pointers(order), bound.params, pool), restored, results, (kernel, arrays), seconds
    )


@op
def doubled(x: inout(f32[N])):  # type: ignore[valid-type]
    for i in range(N):
        x[i] = x[i] + x[i]


def of_library(given: Subject, task: Task) -> Call:
    """The function `run` of a shared object."""
    library = ctypes.CDLL(str(task.library))
    inputs = []
    for what, dtype in task.arguments:
        known = isinstance(what, str)
        inputs.append(np.asarray(given.values[what], dtype) if known else np.full(what[1:], what[0], dtype))
    arrays = [copied(x) for x in inputs]
    address = ctypes.cast(library.run, ctypes.c_void_p).value or 0
    pairs = zip(task.arguments, arrays, inputs, strict=True)
    restored = [(a, x) for (what, _), a, x in pairs if not isinstance(what, str) or what in given.updated]
    return Call(
        address, (_pointers(arrays), None, None), restored, [arrays[k] for k in task.results], (library, arrays)
    )


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*[a.ctypes.data for a in arrays])


class Loop:
    """The native loop around a call."""

    def __init__(self, call: Call, folder: Path) -> None:
        source, made = folder / "loop.c", folder / "loop.so"
        source.write_text(LOOP, encoding="utf-8")
        compiler = shutil.which("gcc") or shutil.which("clang-19") or "cc"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
        self.native = ctypes.CDLL(str(made)).loop
        self.call = call
        self.to = _pointers([a for a, _ in call.restored])
        self.origin = _pointers([x for _, x in call.restored])
        self.bytes = (ctypes.c_size_t * max(1, len(call.restored)))(*[x.nbytes for _, x in call.restored])
        nothing = ctypes.CDLL(None).abs  # the clock's own time
        self.empty = min(self._times(ctypes.cast(nothing, ctypes.c_void_p).value or 0, 1000, 0))

    def run(self, count: int) -> tuple[float, float]:
        """Least and median seconds of `count` calls."""
        spent = sorted(max(t - self.empty, 1.0) for t in self._times(self.call.address, count, len(self.call.restored)))
        return spent[0] * 1e-9, spent[len(spent) // 2] * 1e-9

    def _times(self, address: int, count: int, restored: int) -> list[float]:
        spent = (ctypes.c_double * count)()
        a, b, c = (ctypes.cast(p, ctypes.c_void_p) if p is not None else None for p in self.call.pointers)
        self.native(ctypes.c_void_p(address), a, b, c, restored, self.to, self.origin, self.bytes, count, spent)
        return list(spent)


def main() -> None:
    """Answer the lines of standard input."""
    task: Task = pickle.loads(Path(sys.argv[1]).read_bytes())
    if task.pinned:
        pin_to_one_core()
    given = subject(task.kernel, task.size, task.single, task.seed)
    with tempfile.TemporaryDirectory() as folder:
        if task.library is None:
            os.environ["POLYC_CACHE"] = folder
        call = of_library(given, task) if task.library else of_polyc(given, task)
        loop = Loop(call, Path(folder))
        print(json.dumps(call.seconds), flush=True)
        for line in sys.stdin:
            verb, what = line.split(maxsplit=1)
            if verb == "save":
                np.savez(what.strip(), *call.results)
                print("null", flush=True)
            else:
                print(json.dumps(loop.run(int(what))), flush=True)


if __name__ == "__main__":
    main()
