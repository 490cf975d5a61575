"""Gradients of everything there is: `python -m tests.adjoint.sweeps KIND [NAME or COUNT...]`.

KIND is polybench, library, second (derivatives of derivatives) or random.

Prints a line each: the relative error of the gradient along a random direction against central differences in float64,
the seconds that deriving took, or why there is none.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / folder) for folder in ("adjoint", "gpu", "library", "."))]

import library_cases  # noqa: E402
from gradient_check import gradient_error, in_order  # noqa: E402
from random_programs import Generator  # noqa: E402

import polyc  # noqa: E402
from examples import polybench  # noqa: E402
from polyc.poly.adjoint.errors import NotDifferentiable  # noqa: E402
from polyc.poly.adjoint.joint import adjoint  # noqa: E402
from polyc.poly.dtypes import f64  # noqa: E402
from polyc.poly.rewriting.specialise import specialise  # noqa: E402
from polyc.poly.scop import Scop  # noqa: E402

Case = tuple[str, Scop, dict[str, int], dict[str, Any]]  # name, symbolic Scop, sizes, arguments
LIMIT = 1e-6


def polybench_cases(names: list[str]) -> Iterator[Case]:
    """PolyBench's kernels at tiny sizes, but those on integers."""
    for name in names or polybench.MODULES:
        kernel = polybench.load(name)
        sizes = {k: 3 if k.startswith("T") else 8 - n for n, k in enumerate(kernel.sizes["MINI"])}
        values = kernel.inputs(sizes, np.random.default_rng(1))
        constants = {k: v for k, v in values.items() if isinstance(v, int)}
        arrays = {k: v for k, v in values.items() if k not in constants}
        scop = kernel.operator.scop(**constants)
        yield name, scop, {p: sizes[p] for p in scop.params if p in sizes}, arrays


def library_case(name: str, sizes: tuple[int, int, int] = (3, 4, 5)) -> Case:
    """A library operator in float64 (f32 in the case's text becomes f64)."""
    with patch.object(library_cases, "f32", f64):  # other tests of this process take their cases from there, too
        scop = library_cases.CASES[name](*sizes).scop()
    rng = np.random.default_rng(sum(map(ord, name)))
    values = {n: drawn(scop, n, rng) for n in scop.args}
    if name == "batch_norm":
        values = {n: np.abs(v) for n, v in values.items()}  # a variance is among them
    return name, scop, {}, values


SECOND = (
    "conv_plain pointwise depthwise winograd_output gelu add maximum batch_norm matmul batched gemm einsum max_pool"
    " average_pool lp_pool mean l2 prod log_sum_exp cumsum cumulative_product softmax log_softmax layer_norm rms_norm"
    " group_norm mean_variance transpose pad gather repeat linear lstm gru rnn"
).split()
"""Operators whose second derivatives are checked."""


def second_case(name: str) -> Case:
    """The adjoint of a library operator, at which it is derived again."""
    _, scop, _, values = library_case(name, (2, 3, 4))
    made = adjoint(scop).scop
    rng = np.random.default_rng(5)
    return f"{name} twice", made, {}, {n: values[n] if n in values else drawn(made, n, rng) for n in made.args}


def random_case(seed: int) -> Case:
    """A random program with all its floating-point types as f64, at values that are no small integers."""
    program = Generator(seed).program()
    text = re.sub(r"\b(f32|f16)\b", "f64", program.source)
    operator = polyc.op.from_source(text, name="kernel")
    scop = operator.scop(**{n: v for n, v in program.sizes.items() if n in operator.signature.dims()})
    rng = np.random.default_rng(seed)
    values = dict(zip(scop.args, program.arguments(), strict=True))
    for n, v in values.items():
        if scop.arrays[n].dtype.is_float:
            drawn = rng.uniform(-1.2, 1.2, np.shape(v))
            values[n] = drawn if np.ndim(v) else float(drawn)
    return f"seed {seed}", scop, {}, values


def drawn(scop: Scop, name: str, rng: np.random.Generator) -> Any:
    """Random values of an argument: integers that are subscripts of anything."""
    a = scop.arrays[name]
    shape = tuple(int(e.value) for e in a.shape)
    if a.dtype.is_float:
        return rng.standard_normal(shape) if shape else float(rng.standard_normal())
    if a.dtype.is_int:
        return rng.integers(0, 2, shape).astype(a.dtype.np)
    return rng.random(shape) < 0.5


def checked(case: Case, run: Any = in_order) -> tuple[str, float | None, float]:
    """What came out, the error, and the seconds that deriving took."""
    name, scop, sizes, values = case
    start = time.perf_counter()
    try:
        made = adjoint(scop)
    except NotDifferentiable as refusal:
        return f"refused: {refusal}", None, time.perf_counter() - start
    took = time.perf_counter() - start
    small = type(made)(specialise(made.scop, sizes), made.seeds, made.gradients, made.tapes, made.notes)
    error = gradient_error(specialise(scop, sizes), values, run=run, made=small, forward=in_order)
    return ("ok" if error < LIMIT else "WRONG"), error, took


def report(name: str, make: Any) -> bool:
    """One line; whether it is well."""
    try:
        said, error, took = checked(make())
    except Exception as problem:
        said, error, took = f"FAILED {type(problem).__name__}: {str(problem)[:300]}", None, 0.0
    print(f"{name:28} {'' if error is None else f'{error:.1e}':8} {took:6.1f} s  {said}", flush=True)
    return not said.startswith(("WRONG", "FAILED"))


def main(kind: str, *names: str) -> None:
    """Print one line for each."""
    if kind == "polybench":
        for case in polybench_cases(list(names)):
            report(case[0], lambda case=case: case)
    elif kind == "random":
        first, last = (int(names[0]), int(names[1])) if len(names) > 1 else (0, int(names[0]))
        for seed in range(first, last):
            report(f"seed {seed}", lambda seed=seed: random_case(seed))
    elif kind == "second":
        for name in names or SECOND:
            report(name, lambda name=name: second_case(name))
    elif kind == "library":
        for name in names or library_cases.CASES:
            report(name, lambda name=name: library_case(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
