"""A trace as Python text: one line a step, as a person would write it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import pairwise
from keyword import iskeyword
from math import isfinite
from typing import Any

from polyc.poly.expr import Const, Expr
from polyc.poly.scop import Scop
from polyc.scheduler.step import Step


def operator_text(scop: Scop, operator: str | None = None) -> str:
    """What `program_text` calls the operator of a Scop: `operator` (None: the Scop's name), with the constants, sizes
    and shapes that the Scop was made for, unless it has brackets already."""
    name = operator or (scop.name if scop.name.isidentifier() and not iskeyword(scop.name) else "op")
    if "(" in name or scop.origin is None:
        return name if "(" in name else f"{name}()"
    of = scop.origin
    shapes = {n: [_number(e) for e in shape] for n, shape in of.shapes.items()}
    given: dict[str, str | None] = {n: _constant(v) for n, v in of.constants.items()}
    given |= {n: _number(e) for n, e in of.sizes.items()}
    given |= {n: str(tuple(map(int, filter(None, s)))) for n, s in shapes.items() if None not in s}
    return f"{name}({', '.join(f'{n}={v}' for n, v in given.items() if v is not None)})"


def _constant(value: Any) -> str | None:
    """A compile-time constant as Python; None for what has no text of its own."""
    if isinstance(value, float):
        return repr(float(value)) if isfinite(value) else f'float("{float(value)}")'
    return _literal(value) if isinstance(value, (bool, int, str)) else None


def _number(e: Expr) -> str | None:
    """A size that is a number."""
    return str(e.value) if isinstance(e, Const) else None


def program_text(schedule: type, trace: Sequence[Step], operator: str) -> str:
    """The lines that rebuild the schedule from the program order of `operator`: `jacobi`, or with what its Scop is
    made for, `jacobi(tsteps=5)`.

    `schedule` is the class whose methods the steps are: arguments without a default are written by position, others
    by name where they are not the default.
    """
    name, bracket, given = operator.partition("(")
    lines = [f"s = {name}.scop({given if bracket else ')'}.schedule()"]
    lines += [f"s = s.{step.name}({', '.join(_arguments(schedule, step))})" for step in trace]
    return "".join(line + "\n" for line in lines)


def _arguments(schedule: type, step: Step) -> list[str]:
    parameters = list(inspect.signature(getattr(schedule, step.name)).parameters.values())[1:]
    written: list[str] = []
    by_name = False
    spread = next((b for a, b in pairwise(parameters) if a.kind is inspect.Parameter.VAR_POSITIONAL), None)
    if spread is not None:  # `permute("k", "i", "j")`: the trace has the names as a list
        written += map(_literal, step.args[spread.name])
    for p in parameters:
        if p.kind is inspect.Parameter.VAR_POSITIONAL or p is spread:
            continue
        value: Any = step.args.get(p.name, p.default)
        if p.default is not inspect.Parameter.empty and _same(value, p.default):
            by_name = True  # what comes after an argument that is left out needs its name
            continue
        by_name = by_name or p.default is not inspect.Parameter.empty or p.kind is inspect.Parameter.KEYWORD_ONLY
        text = _literal(value)
        written.append(f"{p.name}={text}" if by_name else text)
    return written


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _literal(value: Any) -> str:
    """A value of a step (JSON's types) with double quotes, as the repository writes strings."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(k)}: {_literal(v)}" for k, v in value.items()) + "}"
    return repr(value)
