"""Derives `coefficients.py`: near-minimax polynomials by weighted least squares, in 60 digits.

Run `python -m polyc.emit.mathlib.fit > emit/mathlib/coefficients.py`. Needs `mpmath` (a
development dependency); nothing at run time imports this module. Every polynomial is
the shortest whose weighted error is below its bound after rounding the coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

from polyc.poly.records import dataclass

mp.mp.dps = 60
Number = Any  # an mpmath number


@dataclass(frozen=True)
class Fit:
    """Approximate `g` on [lo, hi] by a polynomial, weighted error below `2**-bits`."""

    name: str
    g: Callable[[Number], Number]
    weight: Callable[[Number], Number]
    lo: Number
    hi: Number
    bits: float
    single: bool


def least_squares(xs: list[Number], gs: list[Number], ws: list[Number], first: int, count: int) -> list[Number]:
    """`c` minimising the sum of `(w (sum c_k x**(first+k) - g))**2`.

    On Chebyshev nodes this is within a small factor of the minimax polynomial, and, other than
    Remez exchange, it exists for every set of powers. 60 digits make normal equations safe.
    """
    rows = [[w * x ** (first + k) for k in range(count)] for x, w in zip(xs, ws, strict=True)]
    a, b = mp.matrix(count, count), mp.matrix(count, 1)
    for i in range(count):
        b[i] = mp.fsum(r[i] * w * g for r, w, g in zip(rows, ws, gs, strict=True))
        for j in range(i, count):
            a[i, j] = a[j, i] = mp.fsum(r[i] * r[j] for r in rows)
    return list(mp.lu_solve(a, b))


def _polyval(c: list[Number], x: Number) -> Number:
    value = mp.mpf(0)
    for v in reversed(c):
        value = value * x + v
    return value


def fit(job: Fit, points: int = 160) -> tuple[list[float], float]:
    """The rounded coefficients, lowest power first, and the weighted error that they have.

    Coefficients are rounded one after the other from the lowest; the rest is refitted
    each time, so that later coefficients make up for earlier roundings.

    Raises:
        ArithmeticError: no polynomial of up to 29 terms is good enough.
    """
    span = (job.hi - job.lo) / 2
    xs = [(job.lo + span) - span * mp.cos(mp.pi * (2 * i + 1) / (2 * points)) for i in range(points)]
    gs, ws = [job.g(x) for x in xs], [job.weight(x) for x in xs]

    def error(c: list[Number]) -> Number:
        return max(abs(w * (_polyval(c, x) - g)) for x, g, w in zip(xs, gs, ws, strict=True))

    for count in range(2, 30):
        if error(least_squares(xs, gs, ws, 0, count)) < mp.mpf(2) ** -job.bits:
            done: list[float] = []
            rest = list(gs)
            for k in range(count):
                c = least_squares(xs, rest, ws, k, count - k)
                done.append(float(np.float32(float(c[0]))) if job.single else float(c[0]))
                rest = [g - mp.mpf(done[k]) * x**k for g, x in zip(rest, xs, strict=True)]
            reached = error([mp.mpf(c) for c in done])
            if reached < mp.mpf(2) ** -job.bits:
                return done, float(mp.log(reached, 2))
    raise ArithmeticError(f"{job.name}: no polynomial is good enough")


def _even(f: Callable[[Number], Number], lead: list[Number], power: int) -> Callable[[Number], Number]:
    """`(f(sqrt(z)) - lead(z)) / sqrt(z)**power`, evaluated with spare digits."""

    def g(z: Number) -> Number:
        with mp.workdps(120):
            z = max(mp.mpf(z), mp.mpf("1e-30"))
            x = mp.sqrt(z)
            return (f(x) - sum(c * x**k for k, c in enumerate(lead))) / x**power

    return g


SMALL = mp.mpf("1e-9")  # keeps weights above 0
HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.005")
LOW, HIGH = mp.sqrt(mp.mpf(1) / 2) - 1 - mp.mpf("1e-6"), mp.sqrt(2) - 1 + mp.mpf("1e-6")
"""Where the mantissa less 1 lies for logarithms: from sqrt(1/2) - 1 to sqrt(2) - 1."""
S_MAX = HIGH / (2 + HIGH)
QUARTER = (mp.pi / 4 * mp.mpf("1.001")) ** 2


def jobs() -> list[Fit]:
    """All polynomials of the library."""
    return [*_of(True), *_of(False), _logarithm_of_pow()]


def _of(single: bool) -> list[Fit]:
    """Those of one type, f32 (`single`) or f64."""
    more = [*_short_exponentials(), _logarithm()] if single else [_logarithm_by_atanh()]
    return [*_exponentials(single), *more, *_odd_and_even(single), *([] if single else [_erfc()])]


def _fit(
    single: bool, name: str, g: Callable[[Number], Number], weight: Callable[[Number], Number],
    lo: Number, hi: Number, extra: float = 0.0,
) -> Fit:  # fmt: skip
    """A polynomial a few bits better than its type, `extra` bits more."""
    tag, bits = ("F32", 26.3) if single else ("F64", 56.5)
    return Fit(f"{name}_{tag}", g, weight, mp.mpf(lo), mp.mpf(hi), bits + extra, single)


def _expm1_tail(r: Number) -> Number:
    with mp.workdps(120):
        r = r if abs(r) > mp.mpf("1e-30") else mp.mpf("1e-30")
        return (mp.expm1(r) - r) / r**2


def _exponentials(single: bool) -> list[Fit]:
    """expm1(r) = r + r^2 P(r), error relative to r; exp(r) - 1 likewise, error relative to 1."""
    return [
        _fit(single, "EXPM1", _expm1_tail, lambda r: abs(r) + SMALL, -HALF_LN2, HALF_LN2),
        _fit(single, "EXP", _expm1_tail, lambda r: r**2 + SMALL, -HALF_LN2, HALF_LN2),
    ]


def _short_exponentials() -> list[Fit]:
    """exp in fewer terms, for what has room for another unit in the last place; 2**f = 1 + f P(f), error relative to 1;
    erfc(a) = 2**Q(a) for a in [1, 4], of which 1 - erfc needs only an absolute error."""

    def exp2_tail(f: Number) -> Number:
        with mp.workdps(120):
            f = f if abs(f) > mp.mpf("1e-30") else mp.mpf("1e-30")
            return (mp.mpf(2) ** f - 1) / f

    half = mp.mpf("0.5025")
    return [
        _fit(True, "EXP_SHORT", _expm1_tail, lambda r: r**2 + SMALL, -HALF_LN2, HALF_LN2, -3.3),
        _fit(True, "EXP2", exp2_tail, lambda f: abs(f) + SMALL, -half, half, -3.3),
        _fit(True, "ERFC", lambda a: mp.log(mp.erfc(a), 2), lambda a: mp.log(2) * mp.erfc(a), 1, 4, -1.5),
    ]


def _logarithm() -> Fit:
    """log(1 + f) = f - f^2/2 + f^3 P(f)."""

    def tail(f: Number) -> Number:
        with mp.workdps(120):
            f = f if abs(f) > mp.mpf("1e-20") else mp.mpf("1e-20")
            return (mp.log1p(f) - f + f**2 / 2) / f**3

    return _fit(True, "LOG", tail, lambda f: abs(f) ** 2 + SMALL, LOW, HIGH)


def _logarithm_by_atanh() -> Fit:
    """log(1 + f) = 2 atanh(s) = 2 s + s^3 R(s^2), s = f / (2 + f)."""
    return _fit(
        False, "LOG", _even(lambda s: 2 * mp.atanh(s), [0, 2], 3), lambda z: z / 2 + SMALL, 0, S_MAX**2
    )  # fmt: skip


def _odd_and_even(single: bool) -> list[Fit]:
    """Functions whose rest, divided by a power of x, is a polynomial in x^2."""

    def one(_: Number) -> Number:
        return mp.mpf(1)

    t = mp.tan(mp.pi / 8) * mp.mpf("1.0001")
    return [
        _fit(single, "SIN", _even(mp.sin, [0, 1], 3), lambda z: z + SMALL, 0, QUARTER),
        _fit(single, "COS", _even(mp.cos, [1, 0, mp.mpf(-1) / 2], 4), lambda z: z**2 + SMALL, 0, QUARTER),
        _fit(single, "ATAN", _even(mp.atan, [0, 1], 3), lambda z: z + SMALL, 0, t**2),
        _fit(single, "ASIN", _even(mp.asin, [0, 1], 3), lambda z: z + SMALL, 0, mp.mpf("0.2501")),
        _fit(single, "SINH", _even(mp.sinh, [0, 1], 3), lambda z: z + SMALL, 0, 1),
        _fit(single, "ERF", _even(mp.erf, [0, 1], 1), one, 0, 1, -2.5 if single else -1.5),
    ]


def _erfc() -> Fit:
    """erfc(a) = exp(Q(a - 1)) for a in [1, 6]."""
    return _fit(False, "ERFC", lambda u: mp.log(mp.erfc(u + 1)), lambda u: mp.erfc(u + 1), 0, 5, -1.0)


def _logarithm_of_pow() -> Fit:
    """log(m) = 2 s (1 + z (1/3 + z T(z))), z = s^2; the first two terms in double-double."""
    g = _even(mp.atanh, [0, 1, 0, mp.mpf(1) / 3], 5)
    return Fit("POW_LOG", g, lambda z: z**2 + SMALL, mp.mpf(0), S_MAX**2, 68.0, False)


def main() -> None:
    """Print the module `polyc.emit.mathlib.coefficients`."""
    print('"""Near-minimax polynomials, lowest power first. Generated by `polyc.emit.mathlib.fit`: do not edit."""\n')
    for job in jobs():
        coefficients, error = fit(job)
        print(f"# weighted error 2**{error:.1f} on [{float(job.lo):.4f}, {float(job.hi):.4f}]")
        print(f"{job.name} = (")
        for c in coefficients:
            print(f"    {c!r},")
        print(")")


if __name__ == "__main__":
    main()
