"""Derivatives against differences: the judge of all tests here.

A gradient is compared with central differences in float64 along random directions, at two steps of which the better
one counts; a tangent with the same differences, and with the gradient by `<J v, w> = <v, J^T w>`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyc.poly.adjoint.ends import arguments_of, results_of
from polyc.poly.adjoint.joint import Adjoint, adjoint
from polyc.poly.cache import per_scop
from polyc.poly.hooks import resolve
from polyc.poly.scop import Scop

STEPS = (1e-4, 1e-5, 1e-6)  # of unit directions
Values = Mapping[str, Any]
Run = Callable[[Scop, Values], dict[str, np.ndarray]]


@per_scop
def _automatic(scop: Scop) -> Any:
    return resolve("compile_operator")(scop)


@per_scop
def _plain(scop: Scop) -> Any:
    return resolve("compile_operator")(scop, schedule=scop.schedule())


def interpreted(scop: Scop, given: Values) -> dict[str, np.ndarray]:
    """Results and arrays updated in place, by the reference interpreter."""
    return _by_name(scop, given, lambda scop, values: resolve("run_scop")(scop, values))


def compiled(scop: Scop, given: Values) -> dict[str, np.ndarray]:
    """The same by the automatic schedule's kernel."""

    def run(scop: Scop, values: Mapping[str, Any]) -> list[np.ndarray]:
        found = _automatic(scop)(*(values[n] for n in scop.args))
        return [] if found is None else list(found) if isinstance(found, tuple) else [found]

    return _by_name(scop, given, run)


def in_order(scop: Scop, given: Values) -> dict[str, np.ndarray]:
    """The same by a kernel in program order."""

    def run(scop: Scop, values: Mapping[str, Any]) -> list[np.ndarray]:
        found = _plain(scop)(*(values[n] for n in scop.args))
        return [] if found is None else list(found) if isinstance(found, tuple) else [found]

    return _by_name(scop, given, run)


def _by_name(scop: Scop, given: Values, run: Any) -> dict[str, np.ndarray]:
    values = {n: np.array(given[n], scop.arrays[n].dtype.np) for n in scop.args}
    out = dict(zip(scop.results, run(scop, values), strict=True))
    return out | {n: values[n] for n in scop.args if scop.arrays[n].kind == "inout"}


def inner(a: Sequence[Any], b: Sequence[Any]) -> float:
    """The sum of the products of all elements."""
    return float(sum(np.sum(np.asarray(x, np.float64) * np.asarray(y, np.float64)) for x, y in zip(a, b, strict=True)))


def difference(
    scop: Scop, given: Values, wrt: Sequence[str], directions: Values, seeds: Values, run: Run
) -> list[float]:
    """The derivative of `sum of seeds * results` along the directions, for each step."""
    found = []
    for h in STEPS:
        ends = []
        for sign in (1.0, -1.0):
            moved = {**given, **{n: given[n] + sign * h * directions[n] for n in wrt}}
            ends.append(run(scop, moved))
        found.append(sum(float(np.sum((ends[0][n] - ends[1][n]) * seeds[n])) for n in seeds) / (2 * h))
    return found


def gradient_error(scop: Scop, given: Values, wrt: Sequence[str] | None = None, seed: int = 0,
                   run: Run = in_order, made: Adjoint | None = None, forward: Run | None = None) -> float:  # fmt: skip
    """The relative error of the gradient along a random direction. `given` are the arguments by name, in float64."""
    rng = np.random.default_rng(seed)
    names = arguments_of(scop, wrt)
    found = adjoint(scop, wrt) if made is None else made
    forward = forward or run
    before = forward(scop, given)
    seeds = {n: rng.standard_normal(np.shape(before[n])) for n in results_of(scop)}
    directions = {n: rng.standard_normal(np.shape(given[n])) for n in names}
    given_too = {**given, **{found.seeds[n]: v for n, v in seeds.items()}}
    gradients = run(found.scop, given_too)
    exact = inner([gradients[found.gradients[n]] for n in names], [directions[n] for n in names])
    near = difference(scop, given, names, directions, seeds, forward)
    scale = max(abs(exact), max(map(abs, near)), 1e-3 * float(np.sqrt(sum(np.size(v) for v in seeds.values()))))
    return float(min(abs(exact - x) for x in near) / scale) if np.isfinite(exact) else float("inf")
