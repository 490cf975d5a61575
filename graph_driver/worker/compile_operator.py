"""From a Scop to a callable kernel: the services behind `op(...)`, `op.schedule` and `op.compile`.

This is the only place where the front end's Scop, the scheduler and the code generator meet
for a single operator; groups of a model take the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from polyc.graph_driver.backends.cpu import COMPILERS
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.backends.registry import found, platform_of
from polyc.graph_driver.backends.sizes import specialised
from polyc.poly.budgets import OverBudget
from polyc.poly.collection import seldom_collected
from polyc.poly.errors import ScheduleError
from polyc.poly.interrupts import interruptible
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop

if TYPE_CHECKING:
    from polyc.emit.kernel import Kernel
    from polyc.scheduler.schedule import Schedule

Made = TypeVar("Made")


def auto_schedule(
    scop: Scop,
    target: object = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
) -> Schedule:
    """The automatic schedule of `scop` for any target that `compile` takes; sizes not given stay symbolic.

    Raises:
        BuildError: the target is unknown.
    """
    backend, machine = found(target)
    return backend.schedule(specialise(scop, sizes or {}), machine, backend.threads(machine, threads))


def compile_operator(
    scop: Scop,
    target: object = None,
    schedule: Schedule | None = None,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    backend: str | None = None,
    checks: bool | None = None,
) -> Kernel:
    """Compile one Scop. `checks`: whether accesses that are not proven are checked (None: unless `POLYC_CHECK=0`).
    `target` is a target's name or file, `c` for the C back end on this machine, a GPU's (`cuda`, `opencl`, `sm_80`,
    ...), which makes an `polyc.emit.gpu.kernel.GpuKernel`, or one of a back end that is installed. `backend`: of a
    CPU, the compiler (`polyc.graph_driver.backends.cpu.COMPILERS`).

    Raises:
        ScheduleError: `schedule` is none, or belongs to another Scop (other statements).
        BuildError: unknown target, no number of threads, or code generation failed.
    """
    platform = platform_of(target, threads)
    maker = platform.backend if backend is None else COMPILERS[backend]
    machine, workers = platform.machine, platform.threads

    def compiled(s: Schedule) -> Kernel:
        return maker.kernel(s, machine, workers, checks)

    with interruptible(), seldom_collected():
        if schedule is not None:
            return compiled(fitting(scop, schedule, sizes))
        fixed = specialise(scop, sizes or {})
        chosen = _tuned(fixed, platform) or maker.schedule(fixed, machine, workers)
        return or_program_order(chosen, compiled) if maker.has_program_order else compiled(chosen)


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


def _tuned(scop: Scop, platform: Platform) -> Schedule | None:
    """What `polyc tune` has found, if that is asked for."""
    from polyc.graph_driver.worker import tuned as use

    if not platform.backend.takes_tuned or not use.asked():
        return None
    return use.schedule_for(scop, platform.machine, platform.threads)


def fitting(scop: Scop, schedule: Schedule, sizes: Mapping[str, int] | None) -> Schedule:
    """A schedule given by the user, with sizes fixed.

    Raises:
        ScheduleError: it is no schedule, or that of another operator.
    """
    if not hasattr(schedule, "original"):
        raise ScheduleError(
            f"schedule= takes a Schedule, as {scop.name}.scop().schedule() makes it, not {schedule!r:.80}"
        )
    if set(schedule.original.statements) != set(scop.statements):
        raise ScheduleError(f"the schedule given for {scop.name} belongs to another operator")
    return specialised(schedule, sizes or {})
