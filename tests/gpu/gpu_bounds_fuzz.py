"""Random programs with indirection on a GPU: `python tests/gpu/gpu_bounds_fuzz.py COUNT SEED [--opencl] [--page FILE]`.

The programs of `tests/bounds_fuzz.py`, under the automatic schedule and a random binding, run as blocks and threads in
the interpreter, in several orders: it refuses every access outside an array, races and divergent barriers. With
`--opencl` the text runs on the device that is here, too. Outcomes are those of plain Python.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import back_ends
import bounds_fuzz
import numpy as np
import simt

from polyc import BoundsError, DslError
from polyc.emit.gpu import targets
from polyc.emit.gpu.kernel import compile_gpu
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.interpreter.interp import run
from polyc.emit.mathlib import expand_function
from polyc.poly.errors import BuildError
from polyc.poly.violations import violation
from polyc.scheduler.strategies.auto import automatic


def interpreted(scop: Any, fn: Any, given: dict[str, Any], how: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """The violation, if there is one, and the array Y."""
    arrays, sizes = back_ends.arrays_of(scop, [given[n] for n in scop.args])
    record = np.zeros(len(fn.checks), np.uint64)
    run(fn, {b.name: arrays.get(b.name, record) for b in fn.buffers}, sizes, **how)
    return (violation(fn.checks, record.tolist(), sizes) if record.any() else None), arrays["Y"]


def compared(where: str, error: Any, got: np.ndarray, expected: Any, result: np.ndarray) -> None:
    """Fails unless both were outside, or both inside with one result."""
    assert (error is None) == (expected is None), f"{where}: {error!r}, plain Python: {expected!r}"
    if expected is None:
        np.testing.assert_allclose(got, result, rtol=1e-4, atol=1e-4, err_msg=where)
    else:
        assert isinstance(error, BoundsError) and not 0 <= error.index < error.size, f"{where}: {error}"


def check(seed: int, opencl: bool = False) -> Counter[str]:
    """Run one program; how many schedules were `inside`, `outside`, without code (`unmapped`), or without it only with
    checks (`lost`); or whether the front end `refused` it. Raises `AssertionError` where one differs from plain Python.
    """
    found: Counter[str] = Counter()
    source, given = bounds_fuzz.Writer(seed).source(), bounds_fuzz.arguments_for(seed)
    operator = bounds_fuzz.made(source, f"<gpu bounds {seed}>")
    try:
        scop = operator.scop()
    except DslError:
        return Counter(refused=1)
    expected, result = bounds_fuzz.outcome(operator.python, given)
    for kind, s in (("automatic", automatic(scop, simt.TARGET)),
                    ("random", simt.random_binding(scop.schedule(), seed))):  # fmt: skip
        where = f"seed {seed}, {kind}\n{source}"
        try:
            fn = expand_function(lower_gpu(s.scop, s.tree, "program", simt.TARGET, checks=True))
        except BuildError as refused:
            lost = without_checks(s)
            found["lost" if lost else "unmapped"] += 1
            if lost:
                print(f"{where}{refused}", flush=True)
            continue
        for how in simt.ORDERS:
            compared(f"{where}{how}", *interpreted(s.scop, fn, given, how), expected, result)
        if opencl:
            kernel = compile_gpu(s.scop, s.tree, targets.get("opencl"), checks=True)
            error, got = bounds_fuzz.outcome(kernel, given)
            compared(f"{where}opencl", error, got, expected, result)
        found["inside" if expected is None else "outside"] += 1
    return found


def without_checks(s: Any) -> bool:
    """Whether the schedule has code where nothing is checked."""
    try:
        lower_gpu(s.scop, s.tree, "program", simt.TARGET)
    except BuildError:
        return False
    return True


def main() -> int:
    parser = bounds_fuzz.parser_of(__doc__)
    parser.add_argument("--opencl", action="store_true", help="run the texts on the OpenCL device, too")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    kind = "gpu opencl" if given.opencl else "gpu"
    return bounds_fuzz.campaign(given, kind, lambda seed: check(seed, given.opencl))


if __name__ == "__main__":
    sys.exit(main())
