"""Enclosures of the functions of `polyc.poly.intrinsics`.

The table there has how many units in the last place a computed value may be off (tests measure that over the whole
range); an error of the argument is amplified by the largest slope between the two arguments (the mean value theorem).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from polyc.poly.dtypes import DType
from polyc.poly.error_bounds.enclosure import Array, Enclosure, chosen, rounded, tidy, up
from polyc.poly.intrinsics import TABLE
from polyc.poly.records import dataclass

WIDER = 2.0**-48
"""Relative error of what NumPy and `math` compute in f64: they claim at most four units in the last place."""

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _outside(low: float, high: float) -> Callable[[Array, Array], Array]:
    return lambda lo, hi: ~((lo >= low) & (hi <= high))


def _inside(low: float, high: float) -> Callable[[Array, Array], Array]:
    return lambda lo, hi: ~((lo > low) & (hi < high))


def _nearest_0(lo: Array, hi: Array) -> Array:
    return np.where((lo <= 0) & (hi >= 0), 0.0, np.minimum(np.abs(lo), np.abs(hi)))


def _farthest(lo: Array, hi: Array) -> Array:
    return np.maximum(np.abs(lo), np.abs(hi))


def _bell(lo: Array, hi: Array) -> Array:
    near = _nearest_0(lo, hi)
    return 2 / math.sqrt(math.pi) * np.exp(-near * near)


def _sech(lo: Array, hi: Array) -> Array:
    return 1.0 / np.cosh(np.minimum(_nearest_0(lo, hi), 300.0)) ** 2


def _arc(lo: Array, hi: Array) -> Array:
    far = _farthest(lo, hi)
    return np.where(far < 1, 1.0 / np.sqrt(np.maximum((1 - far) * (1 + far), 0.0)), np.inf)


@dataclass(frozen=True, slots=True)
class Monotone:
    """A function that only rises (`sign` 1) or only falls (-1).

    `slope(lo, hi)` is at least the largest magnitude of its derivative between two numbers, `undefined(lo, hi)` says
    where a number between them has no finite value, as `domain` says in words. Its values lie in `values`.
    """

    value: Callable[[Array], Array]
    slope: Callable[[Array, Array], Array]
    values: tuple[float, float] = (-math.inf, math.inf)
    sign: int = 1
    undefined: Callable[[Array, Array], Array] | None = None
    domain: str = ""


MONOTONE = {
    "exp": Monotone(np.exp, lambda lo, hi: np.exp(hi), (0.0, math.inf)),
    "exp_nonpositive": Monotone(np.exp, lambda lo, hi: np.exp(hi), (0.0, math.inf)),
    "expm1": Monotone(np.expm1, lambda lo, hi: np.exp(hi), (-1.0, math.inf)),
    "log": Monotone(np.log, lambda lo, hi: 1.0 / lo, undefined=_inside(0.0, math.inf), domain="may not be positive"),
    "log1p": Monotone(np.log1p, lambda lo, hi: 1.0 / (1.0 + lo), undefined=_inside(-1.0, math.inf),
                      domain="may not be above -1"),
    "sqrt": Monotone(np.sqrt, lambda lo, hi: 0.5 / np.sqrt(lo), (0.0, math.inf), 1, _outside(0.0, math.inf),
                     "may be negative"),
    "rsqrt": Monotone(_rsqrt, lambda lo, hi: 0.5 * lo**-1.5, (0.0, math.inf), -1, _inside(0.0, math.inf),
                      "may not be positive"),
    "asin": Monotone(np.arcsin, _arc, (-1.6, 1.6), 1, _outside(-1.0, 1.0), "may be outside -1..1"),
    "acos": Monotone(np.arccos, _arc, (0.0, 3.2), -1, _outside(-1.0, 1.0), "may be outside -1..1"),
    "atan": Monotone(np.arctan, lambda lo, hi: 1.0 / (1.0 + _nearest_0(lo, hi) ** 2), (-1.6, 1.6)),
    "sinh": Monotone(np.sinh, lambda lo, hi: np.cosh(_farthest(lo, hi))),
    "tanh": Monotone(np.tanh, _sech, (-1.0, 1.0)),
    "erf": Monotone(lambda x: np.asarray(_erf(x), np.float64), _bell, (-1.0, 1.0)),
    "sigmoid": Monotone(_sigmoid, lambda lo, hi: 0.25 * _sech(lo / 2, hi / 2), (0.0, 1.0)),
}  # fmt: skip
STEPS = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}


def applied(name: str, a: Enclosure, dtype: DType) -> Enclosure | None:
    """The function of floats with this name; None where it has no enclosure."""
    if name == "abs":
        return absolute(a)
    if name in STEPS:
        return stepped(STEPS[name], a)
    ulps = max(0.5, TABLE[name].ulp) if name in TABLE else math.inf
    if name in MONOTONE:
        return _monotone(MONOTONE[name], name, a, dtype, ulps)
    if name in ("sin", "cos"):
        return _wave({"sin": np.sin, "cos": np.cos}[name], a, dtype, ulps)
    if name == "cosh":
        ends = [(np.cosh(_nearest_0(lo, hi)) * (1 - WIDER), np.cosh(_farthest(lo, hi)) * (1 + WIDER))
                for lo, hi in ((a.lo, a.hi), (a.clo, a.chi))]  # fmt: skip
        slope = np.sinh(np.maximum(a.exact_magnitude, a.magnitude)) * (1 + WIDER)
        return rounded(*ends[0], *ends[1], _times(slope, a.err), dtype, a.why, ulps)
    if name == "tan":
        return _tangent(a, dtype, ulps)
    return None


def _times(slope: Array, err: Array) -> Array:
    product = slope * err * (1 + WIDER)
    return np.where(err == 0, 0.0, np.where(np.isnan(product), np.inf, product))


def _monotone(f: Monotone, name: str, a: Enclosure, dtype: DType, ulps: float) -> Enclosure:
    bad = np.zeros(np.shape(a.err), bool)
    if f.undefined is not None:
        bad = f.undefined(np.minimum(a.lo, a.clo), np.maximum(a.hi, a.chi))

    def ends(lo: Array, hi: Array) -> tuple[Array, Array]:
        first, last = f.value(lo), f.value(hi)
        low, high = (first, last) if f.sign > 0 else (last, first)
        low, high = low - np.abs(low) * WIDER - 1e-300, high + np.abs(high) * WIDER + 1e-300
        return np.maximum(low, f.values[0]), np.minimum(high, f.values[1])

    exact, computed = ends(a.lo, a.hi), ends(a.clo, a.chi)
    err = _times(f.slope(np.minimum(a.lo, a.clo), np.maximum(a.hi, a.chi)), a.err)
    # However steep it is: no further than the function's values are.
    apart = np.maximum(computed[1] - exact[0], exact[1] - computed[0])
    if name == "sqrt":  # |sqrt(x) - sqrt(y)| <= sqrt(|x - y|)
        err = np.minimum(err, np.sqrt(a.err) * (1 + WIDER))
    err = np.where(np.isnan(err), np.inf, np.fmin(err, up(apart)))
    made = rounded(*exact, *computed, np.where(a.err == 0, 0.0, err), dtype, a.why, ulps)
    if not bad.any():
        return made
    why = a.why or f"{name} of what {f.domain}"
    unknown = [np.where(bad, s * np.inf, e) for s, e in zip((-1, 1), (made.lo, made.hi), strict=True)]
    return Enclosure(
        unknown[0], unknown[1], np.where(bad, -np.inf, made.clo), np.where(bad, np.inf, made.chi),
        np.where(bad, np.inf, made.err), why,
    )  # fmt: skip


def _wave(fn: Callable[[Array], Array], a: Enclosure, dtype: DType, ulps: float) -> Enclosure:
    def ends(lo: Array, hi: Array) -> tuple[Array, Array]:
        middle = (lo + hi) / 2
        reach = up(np.maximum(hi - middle, middle - lo)) + np.abs(middle) * 2.0**-52 + WIDER
        return np.maximum(fn(middle) - reach, -1.0), np.minimum(fn(middle) + reach, 1.0)

    exact, computed = ends(a.lo, a.hi), ends(a.clo, a.chi)
    err = np.where(a.err == 0, 0.0, np.minimum(a.err, 2.0))
    endless = ~np.isfinite(a.magnitude)
    made = rounded(*exact, *computed, np.where(endless, np.inf, err), dtype, a.why, ulps)
    return made if not endless.any() else Enclosure(
        made.lo, made.hi, made.clo, made.chi, np.where(endless, np.inf, made.err), a.why or "sin or cos of infinity"
    )  # fmt: skip


def _tangent(a: Enclosure, dtype: DType, ulps: float) -> Enclosure:
    low, high = np.minimum(a.lo, a.clo), np.maximum(a.hi, a.chi)
    margin = 2.0**-40 * (1 + np.maximum(np.abs(low), np.abs(high)))
    branch = np.floor((low - margin) / math.pi + 0.5), np.floor((high + margin) / math.pi + 0.5)
    bad = ~(branch[0] == branch[1])

    def ends(lo: Array, hi: Array) -> tuple[Array, Array]:
        first, last = np.tan(lo), np.tan(hi)
        wide = 2.0**-40
        return first - np.abs(first) * wide, last + np.abs(last) * wide

    exact, computed = ends(a.lo, a.hi), ends(a.clo, a.chi)
    steepest = 1 + np.maximum(np.maximum(np.abs(computed[0]), np.abs(computed[1])),
                              np.maximum(np.abs(exact[0]), np.abs(exact[1]))) ** 2  # fmt: skip
    made = rounded(*exact, *computed, _times(steepest, a.err), dtype, a.why, ulps)
    if not bad.any():
        return made
    parts = [np.where(bad, s, e) for s, e in zip((-np.inf, np.inf) * 2, (made.lo, made.hi, made.clo, made.chi))]
    why = a.why or "tan of what may pass a pole"
    return Enclosure(parts[0], parts[1], parts[2], parts[3], np.where(bad, np.inf, made.err), why)


def absolute(a: Enclosure) -> Enclosure:
    """`|a|`: no error grows."""
    ends = [(_nearest_0(lo, hi), _farthest(lo, hi)) for lo, hi in ((a.lo, a.hi), (a.clo, a.chi))]
    return tidy(*ends[0], *ends[1], a.err, a.why)


def stepped(fn: Callable[[Array], Array], a: Enclosure) -> Enclosure:
    """A function to integers that only rises: values closer than 1 are at most one step further apart."""
    err = np.where(a.err == 0, 0.0, np.floor(a.err) + 1.0)
    return tidy(fn(a.lo), fn(a.hi), fn(a.clo), fn(a.chi), err, a.why)


def converted(a: Enclosure, source: DType, target: DType) -> Enclosure:
    """A conversion as NumPy's `astype`."""
    if target.is_float:
        from polyc.poly.error_bounds.enclosure import DIGITS

        wide = DIGITS[target.name]
        if source.is_float and DIGITS[source.name] <= wide and not {source.name, target.name} == {"f16", "bf16"}:
            return a
        if not source.is_float and source.bits < wide:
            return a
        if a.known and bool(np.all(a.lo.astype(np.float64).astype(target.np).astype(np.float64) == a.lo)):
            return a
        return rounded(a.lo, a.hi, a.clo, a.chi, a.err, target, a.why)
    if target.kind == "bool":
        one = (np.minimum(np.abs(a.lo), np.abs(a.hi)) > 0) & (np.sign(a.lo) == np.sign(a.hi))
        low, high = one * 1.0, ((a.lo != 0) | (a.hi != 0)) * 1.0
        sure = (a.err == 0) | (one & (np.sign(a.clo) == np.sign(a.chi)) & (a.clo != 0))
        return Enclosure(
            low, high, np.where(sure, low, 0.0), np.where(sure, high, 1.0), np.where(sure, 0.0, 1.0), a.why
        )
    whole = stepped(np.trunc, a) if source.is_float else a
    return fitting(whole, target)


def fitting(a: Enclosure, dtype: DType) -> Enclosure:
    """An integer that must be one of `dtype`: one that may be none has no bound."""
    if dtype.kind == "bool":
        return a
    low, high = (-(2.0 ** (dtype.bits - 1)), 2.0 ** (dtype.bits - 1)) if dtype.kind == "int" else (0.0, 2.0**dtype.bits)
    out = (np.minimum(a.lo, a.clo) < low) | (np.maximum(a.hi, a.chi) >= high)
    if dtype.bits == 64:  # its largest numbers are no f64
        out = (np.minimum(a.lo, a.clo) < low) | (np.maximum(a.hi, a.chi) > high)
    if not out.any():
        return a
    wide = np.where(out, np.inf, a.err)
    none = np.zeros_like(wide)
    unknown = Enclosure(none + low, none + high, none + low, none + high, none + np.inf)
    made = chosen(out, unknown, a)
    return Enclosure(made.lo, made.hi, made.clo, made.chi, wide, a.why or f"may leave the range of {dtype.name}")
