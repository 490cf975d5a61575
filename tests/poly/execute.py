"""Runs a Scop without parameters instance by instance in the order of a tree: the meaning of a Scop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import brute
import numpy as np

from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var
from polyc.poly.scop import Scop


def execute(scop: Scop, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays afterwards; what is not given starts as NaN (never zero)."""
    memory: dict[str, Any] = {}
    for n, a in scop.arrays.items():
        shape = tuple(brute.value(e, {}) for e in a.shape)
        memory[n] = np.array(given[n], dtype=a.dtype.np) if n in given else np.full(shape, np.nan, a.dtype.np)
        assert memory[n].shape == shape
    runs = brute.times(scop.tree, brute.instances(scop))
    order = sorted((t, i) for i, ts in runs.items() for t in ts)
    for _, (name, at) in order:
        s = scop.statements[name]
        env = dict(zip(s.iters, at, strict=True))
        if s.predicate is not None and not value(s.predicate, env, memory):
            continue
        index = tuple(int(value(e, env, memory)) for e in s.index)
        assert all(0 <= k < n for k, n in zip(index, memory[s.array].shape, strict=True))
        memory[s.array][index] = value(s.value, env, memory)
    return memory


def value(e: Expr, env: Mapping[str, int], memory: Mapping[str, np.ndarray]) -> Any:
    def go(x: Expr) -> Any:
        return value(x, env, memory)

    if isinstance(e, Const):
        return e.value
    if isinstance(e, Var):
        return env[e.name]
    if isinstance(e, Load):
        return memory[e.array][tuple(int(go(i)) for i in e.index)]
    if isinstance(e, Cast):
        return int(go(e.a)) if e.dtype == i64 else e.dtype(go(e.a))
    if isinstance(e, Unary):
        return -go(e.a) if e.op == "neg" else not go(e.a)
    if isinstance(e, Select):
        return go(e.a) if go(e.cond) else go(e.b)
    assert isinstance(e, Binary)
    if e.op == "and":
        return go(e.a) and go(e.b)
    if e.op == "or":
        return go(e.a) or go(e.b)
    if e.op in ("min", "max"):
        return {"min": min, "max": max}[e.op](go(e.a), go(e.b))
    return eval(f"a {e.op} b", {"a": go(e.a), "b": go(e.b)})
