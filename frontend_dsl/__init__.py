"""The hybrid-script front end: annotations, parser, specialisation, plain-Python execution, operator library."""

from typing import TYPE_CHECKING, Any

from .annotations import Dim, dims, inout
from .errors import DslError
from .functions import (
    abs,
    acos,
    asin,
    atan,
    bind,
    ceil,
    const_range,
    cos,
    cosh,
    dot_bf16,
    dot_bytes,
    dot_pairs,
    empty,
    erf,
    exp,
    expm1,
    floor,
    fma,
    full,
    grid,
    isinf,
    isnan,
    log,
    log1p,
    max,
    min,
    pack_bf16,
    parallel,
    pow,
    round,
    rsqrt,
    serial,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    unroll,
    vectorize,
    where,
    widen_pairs,
    zeros,
)

if TYPE_CHECKING:
    from .operator import Operator, op

__all__ = [
    "Dim",
    "DslError",
    "Operator",
    "abs",
    "acos",
    "asin",
    "atan",
    "bind",
    "ceil",
    "const_range",
    "cos",
    "cosh",
    "dims",
    "dot_bf16",
    "dot_bytes",
    "dot_pairs",
    "empty",
    "erf",
    "exp",
    "expm1",
    "floor",
    "fma",
    "full",
    "grid",
    "inout",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "max",
    "min",
    "op",
    "pack_bf16",
    "parallel",
    "pow",
    "round",
    "rsqrt",
    "serial",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "unroll",
    "vectorize",
    "where",
    "widen_pairs",
    "zeros",
]


def __getattr__(name: str) -> Any:
    """What reads operators, imported now: formulas of sizes need only `Dim`."""
    if name not in ("Operator", "op"):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from . import operator

    found = globals()[name] = getattr(operator, name)
    return found
