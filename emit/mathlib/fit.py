"""Derives `coefficients.py`: near-minimax polynomials by weighted least squares, in 60 digits.

Run `python -m polyc.emit.mathlib.fit > emit/mathlib/coefficients.py`. Needs `mpmath` (a
development dependency); nothing at run time imports this module. Every polynomial is
the shortest whose weighted error is below its bound after rounding the coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

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


def jobs() -> list[Fit]:
    """All polynomials of the library."""
    out: list[Fit] = []
    half_ln2 = mp.log(2) / 2 * mp.mpf("1.005")
    low, high = mp.sqrt(mp.mpf(1) / 2) - 1 - mp.mpf("1e-6"), mp.sqrt(2) - 1 + mp.mpf("1e-6")
    quarter = (mp.pi / 4 * mp.mpf("1.001")) ** 2

    def expm1_tail(r: Number) -> Number:
        with mp.workdps(120):
            r = r if abs(r) > mp.mpf("1e-30") else mp.mpf("1e-30")
            return (mp.expm1(r) - r) / r**2

    def exp2_tail(f: Number) -> Number:
        with mp.workdps(120):
            f = f if abs(f) > mp.mpf("1e-30") else mp.mpf("1e-30")
            return (mp.mpf(2) ** f - 1) / f

    def log_tail(f: Number) -> Number:
        with mp.workdps(120):
            f = f if abs(f) > mp.mpf("1e-20") else mp.mpf("1e-20")
            return (mp.log1p(f) - f + f**2 / 2) / f**3

    def one(_: Number) -> Number:
        return mp.mpf(1)

    for single in (True, False):
        tag = "F32" if single else "F64"
        bits = 26.3 if single else 56.5

        def add(
            name: str,
            g: Callable[[Number], Number],
            w: Callable[[Number], Number],
            lo: Number,
            hi: Number,
            extra: float = 0.0,
            tag: str = tag,
            bits: float = bits,
            single: bool = single,
        ) -> None:
            out.append(Fit(f"{name}_{tag}", g, w, mp.mpf(lo), mp.mpf(hi), bits + extra, single))

        # expm1(r) = r + r^2 P(r), error relative to r.
        add("EXPM1", expm1_tail, lambda r: abs(r) + mp.mpf("1e-9"), -half_ln2, half_ln2)
        # exp(r) - 1 = r + r^2 P(r), error relative to 1.
        add("EXP", expm1_tail, lambda r: r**2 + mp.mpf("1e-9"), -half_ln2, half_ln2)
        if single:
            # The same in fewer terms, for what has room for another unit in the last place.
            add("EXP_SHORT", expm1_tail, lambda r: r**2 + mp.mpf("1e-9"), -half_ln2, half_ln2, -3.3)
            # 2**f = 1 + f P(f), error relative to 1.
            add("EXP2", exp2_tail, lambda f: abs(f) + mp.mpf("1e-9"), mp.mpf("-0.5025"), mp.mpf("0.5025"), -3.3)
            # erfc(a) = 2**Q(a) for a in [1, 4]; 1 - erfc needs only an absolute error.
            add("ERFC", lambda a: mp.log(mp.erfc(a), 2), lambda a: mp.log(2) * mp.erfc(a), 1, 4, -1.5)
        # log(1+f) = f - f^2/2 + f^3 P(f) in f32; atanh form in f64: R(z) with z = (f/(2+f))^2.
        if single:
            add("LOG", log_tail, lambda f: abs(f) ** 2 + mp.mpf("1e-9"), low, high)
        else:
            s_max = high / (2 + high)
            add("LOG", _even(lambda s: 2 * mp.atanh(s), [0, 2], 3), lambda z: z / 2 + mp.mpf("1e-9"), 0, s_max**2)
        add("SIN", _even(mp.sin, [0, 1], 3), lambda z: z + mp.mpf("1e-9"), 0, quarter)
        add("COS", _even(mp.cos, [1, 0, mp.mpf(-1) / 2], 4), lambda z: z**2 + mp.mpf("1e-9"), 0, quarter)
        t = mp.tan(mp.pi / 8) * mp.mpf("1.0001")
        add("ATAN", _even(mp.atan, [0, 1], 3), lambda z: z + mp.mpf("1e-9"), 0, t**2)
        add("ASIN", _even(mp.asin, [0, 1], 3), lambda z: z + mp.mpf("1e-9"), 0, mp.mpf("0.2501"))
        add("SINH", _even(mp.sinh, [0, 1], 3), lambda z: z + mp.mpf("1e-9"), 0, 1)
        add("ERF", _even(mp.erf, [0, 1], 1), one, 0, 1, -2.5 if single else -1.5)
        if not single:
            # erfc(a) = exp(Q(a - 1)) for a in [1, 6]
            add("ERFC", lambda u: mp.log(mp.erfc(u + 1)), lambda u: mp.erfc(u + 1), 0, 5, -1.0)
    # pow in f64: log(m) = 2 s (1 + z (1/3 + z T(z))), z = s^2; the first two terms in double-double.
    s_max = high / (2 + high)
    z_max = s_max**2
    out.append(
        Fit(
            "POW_LOG",
            _even(mp.atanh, [0, 1, 0, mp.mpf(1) / 3], 5),
            lambda z: z**2 + mp.mpf("1e-9"),
            mp.mpf(0),
            z_max,
            68.0,
            False,
        )
    )
    return out


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
