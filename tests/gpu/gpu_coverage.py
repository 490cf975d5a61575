"""Which operators run as GPU text: `python tests/gpu/gpu_coverage.py [-o docs/gpu-coverage.md] [--only NAME,...]`.

Every operator of the library and every PolyBench kernel, at three sizes that divide nothing, under the
automatic schedule: the CUDA text on the shim (three orders of threads and blocks under AddressSanitizer
and UndefinedBehaviorSanitizer, then ThreadSanitizer; barriers that diverge are always found) and the
OpenCL text on the device that is here, against plain Python. A process a case. Exit code 1 if one fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import executors
import fuzz
import gpu_fuzz
import numpy as np
import simt
from differential import Failure, private_cache
from library_cases import CASES

from examples import polybench
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function
from polyc.emit.mathlib import expand_function
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget
from polyc.scheduler.strategies.auto import automatic

SIZES = ((3, 5, 7), (7, 19, 11), (13, 41, 37))
PRIMES = ((7, 5, 11, 3, 13), (19, 13, 11, 17, 23), (41, 37, 43, 31, 29))  # extents of PolyBench, by parameter
STEPS = 3  # of those kernels that walk in time
FAR = {"f": 1e-5, "d": 1e-10}  # of the largest value; integers must be equal
EXECUTORS = ("cuda", "opencl")


@dataclass
class Case:
    """What one operator gave: `sizes` that were right everywhere, what was wrong, the largest error."""

    name: str
    sizes: list[str] = field(default_factory=list)
    launches: int = 0
    bound: int = 0
    error: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """One operator at one size: arguments, and the updated arrays as plain Python makes them."""

    label: str
    scop: Scop
    args: Sequence[Any]
    expected: Sequence[np.ndarray]


NAMES = [*(f"library {n}" for n in CASES), *(f"polybench {n}" for n in polybench.MODULES)]


def trial(name: str, number: int) -> Trial:
    """Case `name` at the size of that number."""
    room, which = name.split(" ", 1)
    return _library(which, number) if room == "library" else _polybench(which, number)


def _library(name: str, number: int) -> Trial:
    operator = CASES[name](*SIZES[number])
    scop = operator.scop()
    rng = np.random.default_rng(number)
    args = [_drawn(rng, scop.arrays[a].dtype, [int(e.value) for e in scop.arrays[a].shape]) for a in scop.args]
    made = operator.python(*[a.copy() for a in args])
    label = " ".join("x".join(str(e.value) for e in scop.arrays[a].shape) or "1" for a in scop.args) or "none"
    return Trial(label, scop, args, [np.asarray(x) for x in (made if isinstance(made, tuple) else (made,))])


def _drawn(rng: np.random.Generator, dtype: Any, shape: Sequence[int]) -> np.ndarray:
    if dtype.is_float:
        return np.asarray(rng.random(shape) + 0.25, dtype.np)
    return np.asarray(rng.integers(0 if dtype.kind == "uint" else -2, 3, shape), dtype.np)


def _polybench(name: str, number: int) -> Trial:
    k = polybench.load(name)
    sizes = {p: STEPS if p in ("TSTEPS", "TMAX") else n for p, n in zip(k.sizes["MINI"], _extents(k, number))}
    values = k.inputs(sizes, np.random.default_rng(number))
    constants = {n: v for n, v in values.items() if isinstance(v, int)}
    args = [v for n, v in values.items() if n not in constants]
    expected = polybench.run(k.exact.python, k.exact, args, **constants)
    return Trial(", ".join(f"{p}={n}" for p, n in sizes.items()), k.operator.scop(**constants), args, expected)


def _extents(k: polybench.Kernel, number: int) -> list[int]:
    primes = iter(PRIMES[number])
    return [STEPS if p in ("TSTEPS", "TMAX") else next(primes) for p in k.sizes["MINI"]]


def check(name: str, numbers: Sequence[int] = range(len(SIZES)), where: Sequence[str] = EXECUTORS) -> Case:
    """Run one case at the sizes of these numbers."""
    case = Case(name)
    for number in numbers:
        t = trial(name, number)
        found = [*_cuda(t, case)] if "cuda" in where else []
        found += [*_opencl(t, case)] if "opencl" in where else []
        case.wrong += [f"{t.label}: {text}" for text in found]
        if not found:
            case.sizes.append(t.label)
    return case


def _lowered(t: Trial, target: GpuTarget) -> tuple[Scop, Function, int]:
    s = automatic(t.scop, target)
    return s.scop, expand_function(lower_gpu(s.scop, s.tree, "kernel", target)), simt.bound(s)


def _cuda(t: Trial, case: Case) -> list[str]:
    scop, fn, bound = _lowered(t, executors.CUDA)
    program = to_gpu(fn, executors.CUDA)
    case.bound = max(case.bound, bound)
    case.launches = max(case.launches, len(simt.launches(fn)))
    runs: list[dict[str, Any]] = [{"order": o, "check": "bounds", "seed": 1} for o in shim.ORDERS]
    wrong = []
    for how in (*runs, {"check": "races"}):
        try:
            text = _compare(executors.on_shim(scop, program, t.args, **how), t, case)
        except shim.ShimError as error:
            text = str(error)
        if text:
            wrong.append(f"cuda {how}: {text}")
    return wrong


def _opencl(t: Trial, case: Case) -> list[str]:
    scop, fn, _ = _lowered(t, executors.OPENCL)
    text = _compare(executors.on_opencl(scop, fn, t.args), t, case)
    return [f"opencl: {text}"] if text else []


def _compare(got: Sequence[np.ndarray], t: Trial, case: Case) -> str:
    """Where `got` is too far from what is expected; keeps the largest error."""
    for k, (g, e) in enumerate(zip(got, t.expected, strict=True)):
        limit = FAR.get(e.dtype.char, 0.0)
        error = relative_error(g, e)
        case.error = max(case.error, error)
        if not error <= limit:
            return f"array {k} is off by {error:.1e}"
    return ""


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference relative to the largest value; elements that nobody wrote (NaN) do not count."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return float("inf")
    if got.dtype.kind != "f":
        return 0.0 if (got == expected).all() else float("inf")
    written = ~np.isnan(expected)
    scale = max(float(np.abs(expected[written]).max(initial=0)), 1e-30)
    near = (got == expected) | (np.abs(got.astype("f8") - expected) <= scale * np.finfo("f4").eps * 1e6)
    if not near[written].all():  # infinities and NaN where a number belongs, too
        return float("inf")
    with np.errstate(invalid="ignore"):
        off = np.where(got == expected, 0.0, np.abs(got.astype("f8") - expected.astype("f8")))
    return float(off[written].max(initial=0) / scale)


def table(cases: Sequence[Case], where: Sequence[str], seconds: float) -> str:
    """The page of the documentation."""
    good = sum(not c.wrong for c in cases)
    lines = [
        "# What runs as GPU text",
        "",
        "Written by `python tests/gpu/gpu_coverage.py -o docs/gpu-coverage.md`. Every operator of the library and",
        "every PolyBench kernel under the automatic schedule, at three sizes that divide nothing: the CUDA text on",
        "the CPU shim (forward, reverse and shuffled threads under AddressSanitizer and UndefinedBehaviorSanitizer,",
        "then ThreadSanitizer; barriers that diverge are always reported) and the OpenCL text on PoCL, against plain",
        f'Python. Within {FAR["f"]:g} (f32) and {FAR["d"]:g} (f64) of the largest value, integers exactly. "bound"',
        "counts loops on blocks and threads; 0 means that nothing is parallel and one thread does it all.",
        "",
        f"**{good} of {len(cases)}** without a finding at all sizes ({', '.join(where)}; {seconds / 60:.0f} minutes; "
        f"commit {_commit()}).",
        "",
        "| operator | sizes of the arguments | launches | bound | largest error | findings |",
        "|---|---|---|---|---|---|",
    ]
    for c in sorted(cases, key=lambda c: c.name):
        error = f"{c.error:.0e}" if c.error else "0"
        found = "; ".join(c.wrong) or "none"
        lines.append(f"| {c.name} | {'; '.join(c.sizes)} | {c.launches} | {c.bound} | {error} | {found} |")
    return "\n".join(lines) + "\n"


def _commit() -> str:
    """What was run."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return said.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="write the table there")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one operator")
    options = parser.parse_args()
    private_cache()
    names = [n for n in NAMES if options.only is None or n.split(" ", 1)[1] in options.only.split(",")]
    where, began, cases = gpu_fuzz.able(",".join(EXECUTORS)), time.monotonic(), []

    def run(number: int) -> Case:
        try:
            return check(names[number], where=where)
        except Exception as error:  # any crash is a finding
            return Case(names[number], wrong=[f"{type(error).__name__}: {error}"])

    for number, seconds, said in fuzz.trials(range(len(names)), run, options.jobs, options.limit):
        case = Case(names[number], wrong=[said.message]) if isinstance(said, Failure) else said
        cases.append(case)
        print(f"{case.name}: {'; '.join(case.wrong) or 'ok'} ({seconds:.0f} s)", flush=True)
    if options.output:
        options.output.write_text(table(cases, where, time.monotonic() - began), encoding="utf-8")
    wrong = sum(bool(c.wrong) for c in cases)
    print(f"{len(cases)} operators ({', '.join(where)}), {wrong} with findings, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
