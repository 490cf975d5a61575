"""One random program under GPU schedules, against plain Python: interpreter, CUDA text, OpenCL text."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import back_ends
import executors
import numpy as np
import simt
from differential import Failure, exact_when_reordered, oracle
from program_tree import Program
from random_schedules import random_schedule

from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function
from polyc.emit.loop_ir.verify import verify
from polyc.emit.mathlib import expand_function
from polyc.emit.proof.read_back import WrongLoops
from polyc.poly.errors import BuildError
from polyc.poly.target import GpuTarget
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

BACK_ENDS = ("interp", "cuda", "opencl")
UNPROVED = {112}  # program order is refused on the CPU, too: the proof does not see through a constant condition


@dataclass
class Outcome:
    """`runs`: executions that were compared; `bound`: schedules with loops on blocks or threads;
    `refused`: schedules that lowering declined, with the reason."""

    runs: int = 0
    bound: int = 0
    refused: list[str] = field(default_factory=list)
    failure: Failure | None = None


def check(program: Program, where: Sequence[str] = BACK_ENDS, only: str | None = None) -> Outcome:
    """Run `program` under the automatic schedules of both kinds of target or under a random one.

    `only` names the one schedule to look at. The CUDA text runs in all orders of threads under
    AddressSanitizer and UndefinedBehaviorSanitizer, and once under ThreadSanitizer.
    """
    out, stage, schedule = Outcome(), "python", None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = program.arguments()
            expected = oracle(program.operator(), args)
            free = exact_when_reordered(program, expected)
            if program.inexact:
                scop = program.operator().scop()
                expected = back_ends.interpret(scop, scop.tree, args)
            for stage, schedule, target in _schedules(program, free):
                if only in (None, stage):
                    out.bound += simt.bound(schedule) > 0
                    _compare(out, stage, schedule, target, args, expected, where)
    except _Different as error:
        out.failure = Failure(error.stage, error.text, schedule.save() if schedule else "")
    except Exception as error:  # any crash is a finding, reported with its type
        text = f"{type(error).__name__}: {error}"
        out.failure = Failure(f"{stage} crash", text, schedule.save() if schedule else "")
    return out


class _Different(Exception):
    def __init__(self, stage: str, text: str) -> None:
        super().__init__(text)
        self.stage, self.text = stage, text


def _schedules(program: Program, free: bool) -> Iterator[tuple[str, Schedule, GpuTarget | None]]:
    """(name, schedule, the target that it is for; None: any), one kind of schedule a seed."""
    exact = program.operator().scop()
    loose = program.operator(reassociate=True).scop() if free else exact
    if program.seed % 3 == 0:
        yield "automatic-cuda", automatic(loose, executors.CUDA), executors.CUDA
        yield "automatic-opencl", automatic(loose, executors.OPENCL), executors.OPENCL
    elif program.seed % 3 == 1:
        yield "bound", simt.random_binding(Schedule.start(exact), program.seed), None
    else:
        transformed = random_schedule(Schedule.start(loose), program.seed, tries=4)
        yield "transformed", simt.random_binding(transformed, program.seed + 1), None


def _compare(
    out: Outcome, stage: str, schedule: Schedule, target: GpuTarget | None, args: Sequence[object],
    expected: Sequence[np.ndarray], where: Sequence[str],
) -> None:  # fmt: skip
    scop = schedule.scop

    def same(got: Sequence[np.ndarray], run: str) -> None:
        out.runs += 1
        text = back_ends.difference(got, expected, signs=not scop.reassociate)
        if text:
            raise _Different(f"{stage} {run}", text)

    for language, chosen in (("cuda", executors.CUDA), ("opencl", executors.OPENCL)):
        if target not in (None, chosen):
            continue
        try:
            fn = _lowered(schedule, chosen)
            program = to_gpu(fn, chosen)
        except WrongLoops:
            raise
        except BuildError as error:  # a buffer where it cannot stand, a conflict between blocks, a budget
            out.refused.append(f"{stage} {language}: {error}")
            continue
        if "interp" in where and language == "cuda":
            same(simt.results(scop, fn, args, races=True), "interp")
        if language == "cuda" and "cuda" in where:
            for order in shim.ORDERS:
                got = executors.on_shim(scop, program, args, order=order, check="bounds", seed=1)
                same(got, f"cuda {order}")
            same(executors.on_shim(scop, program, args, check="races"), "cuda races")
        if language == "opencl" and "opencl" in where:
            same(executors.on_opencl(scop, fn, args), "opencl")


def _lowered(schedule: Schedule, target: GpuTarget) -> Function:
    fn = expand_function(lower_gpu(schedule.scop, schedule.tree, "kernel", target))
    verify(fn)
    return fn
