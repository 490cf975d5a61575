"""Constant arrays as C initialisers, exact in every bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyc.poly.dtypes import BY_NAME

PER_LINE = 12


def literals(values: np.ndarray) -> Iterator[str]:
    """Lines of initialisers that give back the same bits (NaNs: a NaN)."""
    if values.dtype.kind == "f":
        suffix = "f" if values.dtype == np.float32 else ""
        texts: Iterator[str] = (_float_literal(v, suffix) for v in values.astype(np.float64).tolist())
    elif values.dtype == np.int64:
        texts = (f"{v}LL" if v > -(2**63) else "(-9223372036854775807LL - 1)" for v in values.tolist())
    elif values.dtype == np.int32:
        texts = (str(v) if v > -(2**31) else "(-2147483647 - 1)" for v in values.tolist())
    else:
        texts = (f"{v}{'ULL' if values.dtype == np.uint64 else 'u' if values.dtype.kind == 'u' else ''}"
                 for v in values.tolist())  # fmt: skip
    line: list[str] = []
    for text in texts if values.size else iter(("0",)):
        line.append(text)
        if len(line) == PER_LINE:
            yield ",".join(line) + ",\n"
            line = []
    if line:
        yield ",".join(line) + "\n"


def _float_literal(v: float, suffix: str) -> str:
    if v != v:
        return "NAN"
    if v in (float("inf"), float("-inf")):
        return "INFINITY" if v > 0 else "-INFINITY"
    if v == int(v) and abs(v) < 1e6:
        return f"{v:.1f}{suffix}"
    head, _, exponent = v.hex().partition("p")
    return f"{head.rstrip('0').rstrip('.')}p{exponent}{suffix}"


def stored(dtype: str) -> np.dtype:
    """What an element of this type is in the C array."""
    return (
        np.dtype(np.uint16)
        if dtype in ("f16", "bf16")
        else np.dtype(np.uint8)
        if dtype == "bool_"
        else BY_NAME[dtype].np
    )
