"""From a Scop to a callable kernel: the services behind `op(...)`, `op.schedule` and `op.compile`.

This is the only place where the front end's Scop, the scheduler and the code generator meet
for a single operator; groups of a model take the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from polyc.emit import targets
from polyc.emit.gpu.targets import get as get_gpu
from polyc.emit.gpu.targets import is_gpu
from polyc.poly.budgets import OverBudget
from polyc.poly.errors import ScheduleError
from polyc.poly.interrupts import interruptible
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.target import GpuTarget, Target

if TYPE_CHECKING:
    from polyc.emit.kernel import Kernel
    from polyc.scheduler.schedule import Schedule

Made = TypeVar("Made")


def resolve_target(target: str | Path | Target | None) -> Target:
    """A target by name or file (None = this machine), or the target itself."""
    return target if isinstance(target, Target) else targets.get(target)


def machine_of(target: str | Path | Target | GpuTarget | None) -> Target | GpuTarget:
    """What a target of `compile` stands for: a CPU (None, `cpu` and `c`: this one) or a GPU.

    Raises:
        BuildError: the target is unknown.
    """
    if isinstance(target, (Target, GpuTarget)):
        return target
    if is_gpu(target):
        return get_gpu(str(target))
    return targets.get(None if target == "c" else target)


def auto_schedule(
    scop: Scop,
    target: str | Path | Target | GpuTarget | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
) -> Schedule:
    """The automatic schedule of `scop` for any target that `compile` takes; sizes not given stay symbolic.

    Raises:
        BuildError: the target is unknown.
    """
    from polyc.scheduler.strategies.auto import automatic

    machine = machine_of(target)
    workers = machine.threads if threads is None and isinstance(machine, Target) else threads
    return automatic(specialise(scop, sizes or {}), machine, workers or 1)


def compile_operator(
    scop: Scop,
    target: str | Path | Target | GpuTarget | None = None,
    schedule: Schedule | None = None,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    backend: str | None = None,
    checks: bool | None = None,
) -> Kernel:
    """Compile one Scop. `checks`: whether accesses that are not proven are checked (None: unless `POLYC_CHECK=0`).
    `target` is a target's name or file, `c` for the C back end on this machine, or a
    GPU's (`cuda`, `opencl`, `sm_80`, ...), which makes an `polyc.emit.gpu.kernel.GpuKernel`.

    Raises:
        ScheduleError: `schedule` is none, or belongs to another Scop (other statements).
        BuildError: unknown target, no number of threads, or code generation failed.
    """
    from polyc.emit.compile import compile_kernel

    if isinstance(target, GpuTarget) or is_gpu(target):
        gpu = target if isinstance(target, GpuTarget) else get_gpu(str(target))
        return _compile_gpu(scop, gpu, schedule, sizes, checks)
    if target == "c":
        target, backend = None, "c"
    targets.check_threads(threads)
    machine = resolve_target(target)
    threads = machine.threads if threads is None else threads

    def compiled(s: Schedule) -> Kernel:
        return compile_kernel(s.scop, s.tree, machine, backend or "llvm", threads, notes=s.notes, checks=checks)

    with interruptible():
        if schedule is not None:
            return compiled(fitting(scop, schedule, sizes))
        return or_program_order(
            _tuned(scop, machine, sizes, threads) or auto_schedule(scop, machine, sizes, threads), compiled
        )


def or_program_order(schedule: Schedule, make: Callable[[Schedule], Made]) -> Made:
    """`make(schedule)` of a schedule that nobody asked for; where a stage is over its budget, of the program order,
    which says so in its notes. Raises `OverBudget` where that is over its budget, too."""
    from polyc.scheduler.decision import Decision

    try:
        return make(schedule)
    except OverBudget as error:
        if not schedule.trace:
            raise
        reason = str(error)
    plain = type(schedule).start(schedule.original)
    return make(plain.noted(Decision("budget", "the automatic schedule", "program order stands", "declined", reason)))


def _tuned(scop: Scop, machine: Target, sizes: Mapping[str, int] | None, threads: int) -> Schedule | None:
    """What `polyc tune` has found, if that is asked for."""
    from polyc.graph_driver.worker import tuned as use

    return use.schedule_for(specialise(scop, sizes or {}), machine, threads) if use.asked() else None


def _compile_gpu(
    scop: Scop, target: GpuTarget, schedule: Schedule | None, sizes: Mapping[str, int] | None, checks: bool | None
) -> Kernel:  # fmt: skip
    from polyc.emit.gpu.kernel import compile_gpu

    chosen = auto_schedule(scop, target, sizes) if schedule is None else fitting(scop, schedule, sizes)
    return compile_gpu(chosen.scop, chosen.tree, target, notes=chosen.notes, checks=checks)


def fitting(scop: Scop, schedule: Schedule, sizes: Mapping[str, int] | None) -> Schedule:
    """A schedule given by the user, with sizes fixed."""
    if not hasattr(schedule, "original"):
        raise ScheduleError(
            f"schedule= takes a Schedule, as {scop.name}.scop().schedule() makes it, not {schedule!r:.80}"
        )
    if set(schedule.original.statements) != set(scop.statements):
        raise ScheduleError(f"the schedule given for {scop.name} belongs to another operator")
    return specialised(schedule, sizes or {})


def specialised(schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """The schedule with sizes fixed (those that are still parameters)."""
    from dataclasses import replace

    from polyc.poly.rewriting.specialise import specialise_tree

    known = {n: v for n, v in sizes.items() if n in schedule.scop.params}
    if not known:
        return schedule
    return replace(schedule, scop=specialise(schedule.scop, known), tree=specialise_tree(schedule.tree, known))
