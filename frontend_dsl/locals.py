"""Local scalars: which assignments make a new one, and what is stored where.

A value that Python or the loop variables alone determine is only remembered; it becomes
storage when a run-time loop or condition changes it. Everything else is an array over
the loops around its definition, so that iterations do not share it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from polyc.poly.expr import Load, loads

from .errors import DslError
from .frame import Frame, InnerFunction, Version
from .values import ArrayValue, Grid, Range, Sym, cast, describe, is_weak_number, join, to_sym

TEMPORARY = "temp "  # no name that a user can write


def is_scalar(value: Any) -> bool:
    """A number known now or at run time."""
    return isinstance(value, (Sym, np.generic)) or is_weak_number(value)


def remembered(frame: Frame, value: Any) -> bool:
    """Whether a scalar needs no storage: Python numbers, integers of loop variables, what is kept already."""
    if not isinstance(value, Sym):
        return True
    if isinstance(value.expr, Load) and value.expr.array in frame.program.kept:
        return True
    return value.weak and value.pure and not value.expr.dtype.is_float


def declare(frame: Frame, name: str) -> Version:
    """A new local scalar here, without a value yet."""
    program, builder = frame.program, frame.builder
    prefix, shape = builder.expansion()
    version = Version(name, program.count, builder.loops, builder.guards, prefix, shape)
    program.count += 1
    frame.env[name] = version
    return version


def store(frame: Frame, version: Version, value: Any, node: Any) -> None:
    """Append the statement `version = value`. Raises `TypeProblem` when a constant does not fit."""
    program = frame.program
    sym = to_sym(value)
    seen = program.seen.get(version.ordinal)
    program.seen[version.ordinal] = sym.type if seen is None else join(seen, sym.type)
    span = frame.span(node)
    if version.array is None:
        version.type = program.given[version.ordinal] = program.types.get(version.ordinal, sym.type)
        array = ArrayValue(version.name, version.type.dtype, (), "local", span, version.prefix, version.prefix_shape)
        version.array = frame.builder.add_array(array)
    assert version.type is not None
    if not sym.weak and sym.type != version.type:  # Python's would have the type of the last assignment
        reason = f"{version.name} is {sym.type} here and {version.type} elsewhere"
        program.mixed.append(frame.error(node, reason, f"give it one type, as in {version.type}(x)"))
    frame.builder.store(version.array, (), cast(sym.expr, version.type.dtype), span)
    program.assigned |= {version.ordinal}


def new_local(frame: Frame, name: str, value: Any, node: Any) -> Version:
    """Define a local scalar here and store `value`."""
    version = declare(frame, name)
    store(frame, version, value, node)
    return version


def read(frame: Frame, version: Version, node: Any) -> Sym:
    """The value of a local scalar. Raises `DslError` when it may have none."""
    if version.array is None or version.type is None or version.ordinal not in frame.program.assigned:
        raise frame.error(
            node, f"{version.name} may be used before it is assigned",
            f"assign {version.name} before the loop or condition, in every case",
        )  # fmt: skip
    load = Load(version.array.name, version.prefix, version.type.dtype, frame.span(node))
    return Sym(load, version.type.weak)


def is_shared(frame: Frame, version: Version) -> bool:
    """Whether an assignment here goes to `version` itself, rather than starting a new local."""
    return version.loops != frame.builder.loops or version.guards != frame.builder.guards


def assign(frame: Frame, name: str, value: Any, node: Any) -> None:
    """`name = value`: remember it, start a new local, or store to the one that is there."""
    current = frame.env.get(name)
    shared = isinstance(current, Version) and is_shared(frame, current)
    if name in frame.pinned or (shared and not is_scalar(value)):
        raise _pinned(frame, name, value, node)
    if not is_scalar(value):
        frame.env[name] = keep(frame, value, node)
    elif shared:
        assert isinstance(current, Version)
        store(frame, current, value, node)
    elif remembered(frame, value):
        frame.env[name] = value
    else:
        new_local(frame, name, value, node)


def _pinned(frame: Frame, name: str, value: Any, node: Any) -> DslError:
    """Outside the loop or condition at hand, `name` would mean different things from run to run."""
    if isinstance(value, ArrayValue) and value.span is not None and value.span.line == node.lineno:
        reason = f"the array {name} is created inside a run-time loop or condition and needed outside"
        return frame.error(node, reason, "create it before the loop or condition")
    if isinstance(value, InnerFunction):
        reason = f"the function {name} is defined inside a run-time loop or condition and needed outside"
        return frame.error(node, reason, "define it before the loop or condition")
    reason = f"{name} becomes {describe(value)} inside a run-time loop or condition"
    hint = "a name keeps its array there: copy the elements in a loop, or use another name"
    return frame.error(node, reason, hint)


def settle(frame: Frame, names: Iterable[str], node: ast.AST) -> frozenset[str]:
    """Before a run-time loop or condition that changes `names`: give them storage.

    Returns the names that hold something else than a scalar and so must not change inside.
    """
    fixed = set()
    for name in sorted(names):
        value = frame.env.get(name)
        if isinstance(value, Version):
            continue
        if name not in frame.env:
            declare(frame, name)
        elif is_scalar(value):
            new_local(frame, name, value, node)
        else:
            fixed.add(name)
    return frozenset(fixed)


def hide(frame: Frame, names: Iterable[str]) -> dict[str, Any]:
    """Take names out of sight: a loop's or branch's body defines its own. Returns what they were.

    Their values are dead afterwards, but what they were comes back: where an outer loop
    carries the name round, the next assignment must go to that same scalar.
    """
    return {name: frame.env.pop(name) for name in names if name in frame.env}


def temporary(frame: Frame, value: Sym, node: Any) -> Sym:
    """The present value of an expression, kept in a local of its own."""
    version = new_local(frame, TEMPORARY, value, node)
    del frame.env[TEMPORARY]
    assert version.array is not None
    frame.program.kept.add(version.array.name)
    return read(frame, version, node)


def keep(frame: Frame, value: Any, node: Any) -> Any:
    """A tuple, list or dict whose run-time elements later stores cannot change."""
    if isinstance(value, Sym):
        return temporary(frame, value, node) if next(loads(value.expr), None) is not None else value
    if isinstance(value, (tuple, list)):
        kept = [keep(frame, v, node) for v in value]
        return value if all(a is b for a, b in zip(kept, value)) else type(value)(kept)
    if isinstance(value, dict):
        return {k: keep(frame, v, node) for k, v in value.items()}
    if isinstance(value, (zip, enumerate)):
        return keep(frame, list(value), node)
    if isinstance(value, Range):
        lo, hi = (keep(frame, Sym(e, True), node).expr for e in (value.lo, value.hi))
        return replace(value, lo=lo, hi=hi)
    if isinstance(value, Grid):
        return Grid(tuple(keep(frame, r, node) for r in value.ranges))
    return value
