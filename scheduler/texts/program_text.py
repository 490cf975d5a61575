"""A trace as Python text: one line a step, as a person would write it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from polyc.scheduler.step import Step


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
