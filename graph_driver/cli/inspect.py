"""`polyc inspect FILE.py:OP|MODEL --stage ...`: look at any stage of the compiler."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.frontend_dsl import Operator
from polyc.graph_driver.backends.registry import backends, for_stage, found, platform_of
from polyc.graph_driver.worker import tuned as use
from polyc.poly.errors import ArgumentError, BuildError, PolycError
from polyc.poly.scop import Scop

if TYPE_CHECKING:
    from polyc.graph_driver.importing.binding import Dim
    from polyc.scheduler.schedule import Schedule

OPERATOR_STAGES = (
    "scop",
    "deps",
    "schedule",
    "program",
    "loops",
    "c",
    "llvm",
    "asm",
    "mlir",
    "cuda",
    "opencl",
    "nvptx",
    "ptx",
)
MODEL_STAGES = ("graph", "stats", "whole", "memory", "plan", *OPERATOR_STAGES)


class Stages:
    """The choices of `--stage`: those of polyc, and texts of back ends that are installed, which are asked for others
    only."""

    def __contains__(self, stage: object) -> bool:
        return stage in MODEL_STAGES or stage in operator_stages()

    def __iter__(self) -> Iterator[str]:
        return iter(MODEL_STAGES)


def operator_stages() -> tuple[str, ...]:
    """What there is to look at of an operator, with the texts of back ends that are installed."""
    return tuple(dict.fromkeys((*OPERATOR_STAGES, *(stage for b in backends() for stage in b.stages))))


class UsageError(PolycError):
    """The command line asks for something that does not exist (exit code 2)."""

    code = "P901"


OF_MODELS: dict[str, Any] = {  # options that say nothing about an operator, and what they are when not given
    "bind": [], "exact": False, "reproducible": False, "passes": None, "disable": "", "select": "cost",
    "planner": None, "tasks": False, "memory": "usual",
    "keep_op_borders": False, "fast_math": False, "precision": None, "keep_f32": None, "kernel": None,
    "narrow_only": None, "max_error": None, "data": None, "allow_downcast": False,
    "layouts": "auto", "strict_annotations": False,
}  # fmt: skip


DIGITS = re.compile(r"[0-9]{1,40}")
"""A number on the command line. `str.isdigit` also takes what `int` does not."""


def refuse_model_options(arguments: argparse.Namespace, checks: bool = False, measure: bool = False) -> None:
    """Raises `UsageError` for an option that would have no effect on an operator (or on one for a GPU), and for a
    target that does not exist.

    `checks`: whether the command shows code, in which `--no-checks` can be seen; `measure`: whether it can run it.
    """
    check_target(arguments)
    backend, machine = found(arguments.target)
    for name in ("threads", "tuned"):
        if name in backend.ignored and vars(arguments).get(name) is not None:
            raise UsageError(f"--{name} is of a CPU, and {arguments.target} is none")
    if vars(arguments).get("no_checks") and not checks:
        raise UsageError(f"--no-checks has no effect on polyc {arguments.command} of an operator")
    if vars(arguments).get("measure"):
        if not measure:
            raise UsageError("--measure is of an operator's page: give --html or --json, and no stage")
        if backend.costed(machine) is None:
            raise UsageError(f"--measure runs operators on this machine's CPU, not for '{arguments.target}'")
    for name, absent in OF_MODELS.items():
        if vars(arguments).get(name, absent) != absent:
            raise UsageError(f"--{name.replace('_', '-')} is for models, and {arguments.what} is an operator")


def check_target(arguments: argparse.Namespace) -> None:
    """Refuse a target that does not exist, or that this command has nothing to do with. Raises `UsageError`."""
    what = vars(arguments).get("what")
    # what `compile --target c` writes can be looked at
    looked_at = arguments.command in ("inspect", "explain") and not is_operator(str(what))
    try:
        found(arguments.target, runs=not looked_at)
    except BuildError as error:
        raise UsageError(str(error)) from None


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


def run_registrations(paths: Sequence[Path]) -> None:
    """Run files of the user's that register functions. Raises `UsageError` when one is missing or fails."""
    for path in paths:
        if not path.is_file():
            raise UsageError(f"no such file: {path}")
        _run_file(path)


def _run_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    places = _import_places(path.resolve())
    sys.path[:0] = places
    try:
        spec.loader.exec_module(module)
    except PolycError:
        raise
    except (Exception, SystemExit) as error:  # the user's file may raise anything: it becomes one line
        said = next(iter(str(error).splitlines()), "")
        raise UsageError(f"{path} does not run: {type(error).__name__}: {said}") from None
    finally:
        del sys.path[: len(places)]
    return module


def _import_places(path: Path) -> list[str]:
    """Where imports of the file look first: beside it, and beside the package that it is in."""
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return list(dict.fromkeys([str(path.parent), str(root)]))


def parse_sizes(pairs: list[str] | None) -> dict[str, int]:
    """`["M=512"]` as a dictionary. Raises `UsageError`."""
    sizes = {}
    for name, value in parse_numbers(pairs).items():
        if not isinstance(value, int):
            raise UsageError(f"expected NAME=NUMBER, got '{name}={value}'")
        sizes[name] = value
    return sizes


def parse_bindings(pairs: list[str] | None) -> dict[str, Any]:
    """`["sr=16000", "scales=1,2.5", "mode=true"]` as values of inputs. Raises `UsageError`."""
    found: dict[str, Any] = {}
    for pair in pairs or []:
        name, _, text = pair.rpartition("=")
        try:
            values = json.loads(f"[{text}]")
        except ValueError:
            values = []
        if not name or not values or not all(isinstance(v, (bool, int, float)) for v in values):
            raise UsageError(f"expected --bind NAME=NUMBER[,NUMBER...], got '{pair}'")
        found[name] = values[0] if len(values) == 1 else values
    return found


def parse_dims(pairs: list[str] | None) -> dict[str, Dim]:
    """Sizes of a model: `NAME=V` is a number; `NAME=LO..HI`, `NAME=LO..` and `NAME=any` stay symbolic.

    Raises:
        UsageError: anything else.
    """
    sizes: dict[str, Dim] = {}
    for pair in pairs or ():
        name, _, text = pair.partition("=")
        low, dots, high = ("1", "..", "") if text == "any" else text.partition("..")
        if not name or not DIGITS.fullmatch(low) or not (not high or DIGITS.fullmatch(high)):
            raise UsageError(f"expected NAME=NUMBER, NAME=LO..HI or NAME=any, got '{pair}'")
        sizes[name] = (int(low), int(high) if high else None) if dots else int(low)
    return sizes


def parse_numbers(pairs: list[str] | None) -> dict[str, int | float]:
    """`["M=512", "eps=0.1"]` as a dictionary. Raises `UsageError`."""
    numbers: dict[str, int | float] = {}
    for pair in pairs or ():
        name, _, text = pair.partition("=")
        try:
            value: int | float = int(text) if DIGITS.fullmatch(text.removeprefix("-")) else float(text)
        except ValueError:
            value = math.nan
        if not name or not math.isfinite(value):
            raise UsageError(f"expected NAME=NUMBER, got '{pair}'")
        numbers[name] = value
    return numbers


def operator_scop(op: Operator, given: Mapping[str, int | float]) -> tuple[Scop, dict[str, int]]:
    """The operator's Scop with its compile-time constants, and the values given to its sizes.

    Raises:
        UsageError: a name fits nothing, a constant is missing, or a size is no integer.
    """
    constants = {k: v for k, v in given.items() if k in op.signature.constants}
    try:
        scop = op.scop(**constants)
    except ArgumentError as error:
        raise UsageError(f"{error} (on the command line: --dim NAME=NUMBER)") from None
    sizes: dict[str, int] = {}
    for name, value in given.items():
        if name in constants:
            continue
        if name not in scop.params:
            raise UsageError(f"{scop.name} has no size '{name}' (it has {', '.join(scop.params) or 'none'})")
        if not isinstance(value, int):
            raise UsageError(f"size {name} is a whole number, not {value}")
        sizes[name] = value
    return scop, sizes


def operator_schedule(
    scop: Scop, target: object, sizes: Mapping[str, int], file: Path | None, threads: int | None = None
) -> Schedule:
    """The automatic schedule (within `use.tuned`: a tuned one if there is), or the one saved in `file` by
    `Schedule.save` or `Schedule.to_yaml`. `threads`: None is all cores.

    Raises:
        UsageError: the file cannot be read; ScheduleError, IllegalSchedule: it does not fit.
    """
    from polyc.graph_driver.backends.sizes import specialised
    from polyc.poly.rewriting.specialise import specialise
    from polyc.scheduler.schedule import Schedule

    if file is None:
        backend, machine = found(target)
        fixed, workers = specialise(scop, sizes), backend.threads(machine, threads)
        tuned = use.schedule_for(fixed, machine, workers) if backend.takes_tuned and use.asked() else None
        return backend.schedule(fixed, machine, workers) if tuned is None else tuned
    text = text_of(file, "the schedule")
    read = Schedule.replay if text.lstrip().startswith("{") else Schedule.from_yaml
    return specialised(read(scop, text), sizes)


def text_of(path: Path, what: str) -> str:
    """The text of a file that the command line names. Raises `UsageError`."""
    try:
        if path.is_char_device():
            raise UsageError(f"cannot read {what} {path}: it is a device")  # /dev/zero never ends
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {what} {path}: {getattr(error, 'strerror', None) or error}") from None


def operator_stage(
    op: Operator, stage: str, target: str | None, given: Mapping[str, int | float], file: Path | None = None,
    yaml: bool = False, threads: int | None = None, checks: bool | None = None,
) -> str:  # fmt: skip
    """The text of one stage of an operator; `yaml`: the schedule as a file to edit. `threads`: None is all cores;
    `checks` of accesses that are not proven: None is unless `POLYC_CHECK=0`.

    Raises:
        UsageError: the stage does not exist for operators, or a size is unknown.
    """
    from polyc.poly.rewriting.specialise import specialise

    if stage not in operator_stages():
        raise UsageError(f"an operator has no stage '{stage}' (it has {', '.join(operator_stages())})")
    scop, sizes = operator_scop(op, given)
    if stage == "scop":
        return str(specialise(scop, sizes))
    if stage == "deps":
        return dependences_text(specialise(scop, sizes))
    chosen = for_stage(target, stage)
    schedule = operator_schedule(scop, chosen, sizes, file, threads)
    if stage == "schedule" and yaml:
        return schedule.to_yaml().rstrip("\n")
    if stage == "schedule":
        from polyc.poly.text import print_tree

        return "\n".join([print_tree(schedule.tree, schedule.scop), *(f"# {n}" for n in schedule.notes)])
    if stage == "program":
        return schedule.program().rstrip("\n")
    platform = platform_of(chosen, threads)
    return platform.backend.stage(schedule, platform.machine, platform.threads, stage, sizes, checks)


def document_of(
    op: Operator, target: str | None, given: Mapping[str, int | float], file: Path | None = None,
    threads: int | None = None, measure: bool = False, checks: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Everything about an operator and its schedule (`polyc.graph_driver.html.operator_page`).

    With `measure` it is compiled, with `checks` as in `operator_stage`, and run. Raises as `time_of` does.
    """
    from polyc.graph_driver.bench.operator_time import time_of
    from polyc.graph_driver.html.operator_page import operator_document

    scop, sizes = operator_scop(op, given)
    schedule = operator_schedule(scop, target, sizes, file, threads)
    origin = "automatic" if file is None else file.name
    backend, machine = found(target)
    times = None
    if backend.costed(machine) is not None:
        times = time_of(schedule, machine, backend.threads(machine, threads), measure, backend.name, checks)
    return operator_document(schedule, machine, origin, given, times)


def dependences_text(scop: Any) -> str:
    """Value-based flow, anti and output dependences, one relation a line."""
    from polyc.poly.dependences import flow

    lines = []
    for kind in ("RAW", "WAR", "WAW"):
        maps: list[str] = []
        flow(scop, kind).foreach_map(lambda m, out=maps: out.append(m.to_str()))
        lines += [f"{kind} {m}" for m in sorted(maps)] or [f"{kind} none"]
    return "\n".join(lines)
