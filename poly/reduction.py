"""What reductions start from."""

from __future__ import annotations

from polyc.poly.dtypes import DType, bool_
from polyc.poly.expr import Const


def identity(op: str, dtype: DType) -> Const:
    """The value that `op` leaves everything unchanged with, the sign of zero included (-0.0 + x is x)."""
    if op in ("+", "|", "^", "or"):
        return Const(False if dtype == bool_ else -0.0 if dtype.is_float else 0, dtype)
    if op == "*":
        return Const(1.0 if dtype.is_float else 1, dtype)
    if op in ("and", "&"):
        if dtype == bool_:
            return Const(True, dtype)
        return Const(-1 if dtype.kind == "int" else (1 << dtype.bits) - 1, dtype)
    sign = 1 if op == "min" else -1
    if dtype.is_float:
        return Const(sign * float("inf"), dtype)
    if dtype.kind == "uint":
        return Const((1 << dtype.bits) - 1 if op == "min" else 0, dtype)
    half = 1 << (dtype.bits - 1)
    return Const(half - 1 if op == "min" else -half, dtype)
