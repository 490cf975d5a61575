"""Errors in units of the last place against mpmath: what a function is, not what one machine's NumPy makes of it."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np

_MP: dict[str, Any] = {
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "log1p": mp.log1p,
    "expm1": mp.expm1,
    "pow": mp.power,
    "exp_nonpositive": mp.exp,
}


def ulp_errors(name: str, args: list[np.ndarray], got: np.ndarray) -> np.ndarray:
    """|got - exact| in units of the last place of the exact value; only for finite exact results.

    An overflow or underflow is measured against the largest or smallest number's ulp.
    """
    info = np.finfo(got.dtype)
    out = np.zeros(got.size)
    fn = _MP.get(name) or getattr(mp, name)
    lowest = int(np.log2(info.smallest_subnormal))
    with mp.workdps(60):
        for k in range(got.size):
            exact = fn(*(mp.mpf(float(a[k])) for a in args))
            if abs(exact) > mp.mpf(float(info.max)) * (1 + mp.mpf(2) ** (-info.nmant - 2)):
                out[k] = 0.0 if np.isinf(got[k]) and (got[k] > 0) == (exact > 0) else np.inf
                continue
            exponent = lowest if exact == 0 else max(int(mp.floor(mp.log(abs(exact), 2))) - info.nmant, lowest)
            value = mp.mpf(float(got[k])) if np.isfinite(got[k]) else mp.mpf(2) ** (info.maxexp)
            out[k] = float(abs(value - exact) / mp.mpf(2) ** exponent)
    return out
