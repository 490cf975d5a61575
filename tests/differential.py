"""One random program against plain Python on every back end, in several orders."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import back_ends
import numpy as np
from program_tree import Program
from random_schedules import random_schedule

from polyc.emit.loop_ir.loops import Function
from polyc.poly.tree import Node
from polyc.scheduler.schedule import Schedule


@dataclass(frozen=True)
class Failure:
    """`stage` says which run differs or crashes; `trace` the schedule's steps."""

    stage: str
    message: str
    trace: str = ""

    @property
    def kind(self) -> str:
        """What a smaller program must reproduce."""
        return f"{self.stage}: {self.message.split(':')[0]}" if "crash" in self.stage else self.stage


def private_cache() -> None:
    """Keep thousands of throw-away kernels out of the user's cache."""
    os.environ["POLYC_CACHE"] = tempfile.mkdtemp(prefix="polyc-fuzz-")


def oracle(operator: Any, args: list[Any]) -> list[np.ndarray]:
    """The plain-Python run: updated arrays, then results."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    results = operator.python(*copies)
    results = () if results is None else results if isinstance(results, tuple) else (results,)
    inout = [p.inout for p in operator.signature.params]
    return [*(c for c, flag in zip(copies, inout, strict=True) if flag), *results]


def exact_when_reordered(program: Program, expected: list[np.ndarray]) -> bool:
    """Whether reductions may be reordered without rounding: integers that every float type of the program holds.

    A zero's sign is then the only thing that the order decides (`max` and `min` of two zeros).
    """
    if not program.integral or program.inexact:
        return False
    floats = [a for a in expected if a.dtype.kind == "f"]
    if any(a.dtype == "f2" for a in floats):
        return False
    text = program.source.partition("def ")[2]  # intermediate values may be narrower than every result
    most = 2.0**9 if re.search(r"\bf16\b", text) else 2.0**20 if re.search(r"\bf32\b", text) else 2.0**45
    return all(np.isfinite(a).all() and np.abs(a).max(initial=0) < most for a in floats)


def check(
    program: Program, backends: tuple[str, ...] = ("interp", "llvm", "c"), only: str | None = None
) -> Failure | None:
    """None, or the first difference. `only` names the one order to look at."""
    stage = "python"
    schedule: Schedule | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            operator = program.operator()
            args = program.arguments()
            expected = oracle(operator, args)
            if program.inexact:
                expected = []
            for stage, schedule in _orders(program, expected):
                if only not in (None, stage):
                    continue
                found = _compare(stage, schedule, args, expected, backends, program)
                if found:
                    return found
    except Exception as error:  # any crash is a finding, reported with its type
        return Failure(f"{stage} crash", f"{type(error).__name__}: {error}", schedule.save() if schedule else "")
    return None


def _orders(program: Program, expected: list[np.ndarray]) -> Iterator[tuple[str, Schedule]]:
    """(name, schedule): program order, random orders, automatic; with reassociation where exact."""
    from polyc.emit.targets import host
    from polyc.scheduler.strategies.auto import automatic

    scop = program.operator().scop()
    start = Schedule.start(scop)
    yield "program", start
    yield "random", random_schedule(start, program.seed)
    free = program.operator(reassociate=True).scop() if exact_when_reordered(program, expected) else scop
    yield "reassociated", random_schedule(Schedule.start(free), program.seed + 1)
    yield "automatic", automatic(free, host(), threads=1 + program.seed % 2)


def _compare(
    stage: str, schedule: Schedule, args: list[Any], expected: list[np.ndarray], backends: tuple[str, ...],
    program: Program,
) -> Failure | None:  # fmt: skip
    scop, tree = schedule.scop, schedule.tree
    fn: Function | None = None  # lowered once for all back ends
    for backend in _chosen(stage, backends, program.seed):
        where = f"{stage} {backend}"
        try:
            fn = fn or back_ends.finished(scop, tree)
            got = _run(scop, tree, args, backend, program.seed, fn)
        except Exception as error:
            return Failure(f"{where} crash", f"{type(error).__name__}: {error}", schedule.save())
        if not expected:  # exp and the like: the back ends must agree with each other
            expected = got
        text = back_ends.difference(got, expected, signs=not scop.reassociate)
        if text:
            return Failure(where, text, schedule.save())
    return None


def _chosen(stage: str, backends: tuple[str, ...], seed: int) -> list[str]:
    """The interpreter sees every order of a program, LLVM two and a C compiler one: they take the time."""
    orders = ("program", "random", "automatic", "reassociated")
    native = {"llvm": (orders[seed % 4], orders[(seed + 2) % 4]), "c": (orders[(seed + seed // 4) % 4],)}
    return [b for b in backends if b == "interp" or len(backends) == 1 or stage in native[b]]


def _run(scop: Any, tree: Node, args: list[Any], backend: str, seed: int, fn: Function) -> list[np.ndarray]:
    if backend == "interp":
        return back_ends.interpret(scop, tree, args, shuffle=seed, fn=fn)
    return back_ends.native(scop, tree, args, backend, threads=1 + seed % 2, fn=fn)


def shrink(program: Program, failure: Failure) -> Program:
    """A smaller program with the same kind of failure: lines are dropped while it persists."""
    order, backend = (*failure.stage.split(), "interp")[:2]
    backends = (backend,) if backend in ("interp", "llvm", "c") else ("interp",)
    return smallest(program, failure, lambda smaller: check(smaller, backends, order))


def smallest(program: Program, failure: Failure, failure_of: Callable[[Program], Failure | None]) -> Program:
    """`program` with lines dropped as long as `failure_of` gives the same kind of failure."""
    changed = True
    while changed:
        changed = False
        for path in program.paths():
            for smaller in (program.without(path), program.unwrapped(path)):
                found = failure_of(smaller)
                if found and found.kind == failure.kind:
                    program, changed = smaller, True
                    break
            if changed:
                break
    return program
