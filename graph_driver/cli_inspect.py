"""`polyc inspect FILE.py:OP|MODEL --stage ...`: look at any stage of the compiler."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frontend_dsl import Operator
from poly.errors import PolycError

OPERATOR_STAGES = ("scop", "deps", "schedule", "loops", "c", "llvm", "asm")
MODEL_STAGES = ("graph", "memory", "plan", *OPERATOR_STAGES)


class UsageError(PolycError):
    """The command line asks for something that does not exist (exit code 2)."""


def is_operator(what: str) -> bool:
    """Whether the argument names an operator (`FILE.py:OP`) rather than a model."""
    return ".py:" in what or what.endswith(".py")


def load_operator(what: str) -> Operator:
    """The operator that `FILE.py:OP` names (`FILE.py` alone when it defines just one).

    Raises:
        UsageError: no such file or operator, or the file fails to run.
    """
    path_text, _, name = what.partition(".py")
    path, name = Path(path_text + ".py"), name.removeprefix(":")
    if not path.is_file():
        raise UsageError(f"no such file: {path}")
    module = _run_file(path)
    found = {n: v for n, v in vars(module).items() if isinstance(v, Operator)}
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        has = ", ".join(found) or "none"
        raise UsageError(f"{path} has no operator '{name}' (operators there: {has})")
    return found[name]


def _run_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except PolycError:
        raise
    except Exception as error:  # the user's file may raise anything: it becomes one line
        raise UsageError(f"{path} does not run: {type(error).__name__}: {error}") from None
    finally:
        sys.path.pop(0)
    return module


def parse_sizes(pairs: list[str] | None) -> dict[str, int]:
    """`["M=512"]` as a dictionary. Raises `UsageError`."""
    sizes = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name or not value.lstrip("-").isdigit():
            raise UsageError(f"expected NAME=NUMBER, got '{pair}'")
        sizes[name] = int(value)
    return sizes


def operator_stage(op: Operator, stage: str, target: str | None, sizes: Mapping[str, int]) -> str:
    """The text of one stage of an operator.

    Raises:
        UsageError: the stage does not exist for operators, or a size is unknown.
    """
    from graph_driver.compile_operator import auto_schedule, compile_operator
    from poly.specialise import specialise

    if stage not in OPERATOR_STAGES:
        raise UsageError(f"an operator has no stage '{stage}' (it has {', '.join(OPERATOR_STAGES)})")
    scop = op.scop()
    unknown = sorted(set(sizes) - set(scop.params))
    if unknown:
        raise UsageError(f"{scop.name} has no size '{unknown[0]}' (it has {', '.join(scop.params) or 'none'})")
    if stage == "scop":
        return str(specialise(scop, sizes))
    if stage == "deps":
        return dependences_text(specialise(scop, sizes))
    schedule = auto_schedule(scop, target if target != "c" else None, sizes)
    if stage == "schedule":
        from poly.text import print_tree

        return "\n".join([print_tree(schedule.tree, schedule.scop), *(f"# {n}" for n in schedule.notes)])
    return str(compile_operator(scop, target=target, sizes=sizes).source(stage))


def dependences_text(scop: Any) -> str:
    """Value-based flow, anti and output dependences, one relation a line."""
    from poly.dependences import flow

    lines = []
    for kind in ("RAW", "WAR", "WAW"):
        maps: list[str] = []
        flow(scop, kind).foreach_map(lambda m, out=maps: out.append(m.to_str()))  # type: ignore[misc]
        lines += [f"{kind} {m}" for m in sorted(maps)] or [f"{kind} none"]
    return "\n".join(lines)
