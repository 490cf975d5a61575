"""Runs a Scop by enumerating its instances in schedule order on NumPy scalars: slow and independent.

Checks domains, schedule order, subscripts and expressions of the front end without any back end.
"""

from collections.abc import Mapping
from typing import Any

import islpy as isl
import ml_dtypes  # noqa: F401  (bf16 arithmetic)
import numpy as np
import pytest

from polyc.frontend_dsl import DslError
from polyc.frontend_dsl.annotations import evaluate_size
from polyc.frontend_dsl.functions import poison
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from polyc.poly.intrinsics import TABLE
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import time_maps
from polyc.poly.verify import verify

RNG = np.random.default_rng(7)


def run(scop: Scop, *args: np.ndarray, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """All arrays after executing every instance in lexicographic time order."""
    verify(scop)
    sizes = dict(sizes or {})
    storage: dict[str, np.ndarray] = {}
    for name, array in scop.arrays.items():
        if name in scop.args:
            storage[name] = np.array(args[scop.args.index(name)], array.dtype.np)
        else:
            shape = tuple(max(0, evaluate_size(e, sizes)) for e in array.shape)
            storage[name] = np.full(shape, poison(array.dtype), array.dtype.np)
        shape = tuple(evaluate_size(e, sizes) for e in array.shape)
        assert storage[name].shape == shape or min(shape) < 0, (name, storage[name].shape, shape)
    for statement, point in instances(scop, sizes, storage):
        execute(statement, {**sizes, **dict(zip(statement.iters, point))}, storage)
    return storage


def instances(scop: Scop, sizes: Mapping[str, int], storage: Any) -> list[tuple[Statement, tuple[int, ...]]]:
    """Instances in time order; loops with data-dependent bounds are cut to a box first."""
    found: list[tuple[tuple[int, ...], Statement, tuple[int, ...]]] = []
    for time_map in time_maps(scop.tree, {n: s.domain for n, s in scop.statements.items()}):
        for name, value in sizes.items():
            if (at := time_map.find_dim_by_name(isl.dim_type.param, name)) >= 0:
                time_map = time_map.fix_val(isl.dim_type.param, at, isl.Val(value))
        time_map = time_map.project_out(isl.dim_type.param, 0, time_map.dim(isl.dim_type.param))
        statement = scop.statements[time_map.get_tuple_name(isl.dim_type.in_)]
        for bound in statement.dynamic:
            at = statement.iters.index(bound.iter)
            time_map = time_map.upper_bound_val(isl.dim_type.in_, at, isl.Val(40))
            time_map = time_map.lower_bound_val(isl.dim_type.in_, at, isl.Val(-10))
        count = len(statement.iters)
        points: list[isl.Point] = []
        time_map.wrap().foreach_point(points.append)
        for p in points:
            values = [
                p.get_coordinate_val(isl.dim_type.set, n).to_python()
                for n in range(time_map.wrap().dim(isl.dim_type.set))
            ]
            found.append((tuple(values[count:]), statement, tuple(values[:count])))
    times = [f[0] for f in found]
    assert len(set(times)) == len(times), "two instances at one time"
    return [(s, p) for _, s, p in sorted(found, key=lambda f: f[0])]


def execute(s: Statement, env: Mapping[str, int], storage: dict[str, np.ndarray]) -> None:
    for bound in s.dynamic:
        if not int(value(bound.lo, env, storage)) <= env[bound.iter] < int(value(bound.hi, env, storage)):
            return
    if s.predicate is not None and not value(s.predicate, env, storage):
        return
    index = at(storage, s.array, s.index, env)
    result = value(s.value, env, storage)
    assert np.asarray(result).dtype == storage[s.array].dtype, (s.name, np.asarray(result).dtype)
    storage[s.array][index] = result


def at(storage: dict[str, np.ndarray], name: str, index: tuple[Expr, ...], env: Mapping[str, int]) -> tuple[int, ...]:
    out = tuple(int(value(e, env, storage)) for e in index)
    shape = storage[name].shape
    assert len(out) == len(shape) and all(0 <= i < n for i, n in zip(out, shape)), (name, out, shape)
    return out


def value(e: Expr, env: Mapping[str, int], storage: dict[str, np.ndarray]) -> Any:
    """A NumPy scalar of exactly `e.dtype`."""
    with np.errstate(all="ignore"):
        out = _value(e, env, storage)
    assert np.asarray(out).dtype == e.dtype.np, (e, np.asarray(out).dtype)
    return out


def _value(e: Expr, env: Mapping[str, int], storage: dict[str, np.ndarray]) -> Any:
    if isinstance(e, Const):
        return e.dtype.np.type(e.value)
    if isinstance(e, Var):
        return np.int64(env[e.name])
    if isinstance(e, Load):
        return storage[e.array][at(storage, e.array, e.index, env)]
    if isinstance(e, Select):
        return value(e.a if value(e.cond, env, storage) else e.b, env, storage)
    if isinstance(e, Cast):
        return np.asarray(value(e.a, env, storage)).astype(e.dtype.np)[()]
    if isinstance(e, Call):
        return TABLE[e.fn].numpy(*[value(a, env, storage) for a in e.args])
    if isinstance(e, Unary):
        a = value(e.a, env, storage)
        return {"neg": lambda: -a, "not": lambda: np.bool_(not a), "~": lambda: ~a}[e.op]()
    assert isinstance(e, Binary)
    a = value(e.a, env, storage)
    if e.op in ("and", "or"):
        return a if bool(a) == (e.op == "or") else value(e.b, env, storage)
    b = value(e.b, env, storage)
    assert np.asarray(a).dtype == np.asarray(b).dtype, e
    if e.op in ("min", "max"):
        return (b if b < a else a) if e.op == "min" else (b if b > a else a)
    python = {
        "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "//": lambda: a // b,
        "%": lambda: a % b, "**": lambda: a**b, "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b,
        "<<": lambda: a << b, ">>": lambda: a >> b, "==": lambda: a == b, "!=": lambda: a != b, "<": lambda: a < b,
        "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b,
    }  # fmt: skip
    return python[e.op]()


def check(op: Any, *args: Any, sizes: Mapping[str, int] | None = None, rtol: float = 0.0, **given: Any) -> Scop:
    """The Scop, symbolic where it can be, gives what plain Python gives (bit for bit by default).

    `sizes` are the values of the symbols; `given` (constants, shapes) goes to `.scop`.
    """
    constants = {k: v for k, v in given.items() if k in op.signature.constants}
    expected_args = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    returned = op.python(*expected_args, **constants)
    expected = list(returned) if isinstance(returned, tuple) else [] if returned is None else [returned]
    shapes = {p.name: a.shape for p, a in zip(op.signature.params, args) if p.shape is not None}
    scops = [op.scop(**given)] if not any(p.any_rank for p in op.signature.params) or given else []
    scops.append(op.scop(**{**shapes, **constants}))
    for scop in scops:
        names = [*scop.results, *(n for n in scop.args if scop.arrays[n].kind == "inout")]
        known = dict(sizes or {}) if scop.params else {}
        after = run(scop, *args, sizes=known)
        inout = [a for a, p in zip(expected_args, op.signature.params) if p.inout]
        for name, want in zip(names, [*expected, *inout], strict=True):
            got = after[name]
            assert got.dtype == want.dtype and got.shape == want.shape, name
            if rtol:
                np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=rtol, atol=rtol)
            else:
                np.testing.assert_array_equal(got, want)
    return scops[0]


def check_refused(operator: Any, reason: str) -> None:
    """The front end refuses the operator, for this reason."""
    with pytest.raises(DslError, match=reason):
        operator.scop()


def rand(*shape: int, dtype: str = "f4") -> np.ndarray:
    """Normal values, the same in every session of tests."""
    return RNG.standard_normal(shape).astype(dtype)
