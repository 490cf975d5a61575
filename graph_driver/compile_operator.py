"""From a Scop to a callable kernel: the services behind `op(...)`, `op.schedule` and `op.compile`.

This is the only place where the front end's Scop, the scheduler and the code generator meet
for a single operator; groups of a model take the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from emit import targets
from poly.errors import ScheduleError
from poly.scop import Scop
from poly.specialise import specialise
from poly.target import Target

if TYPE_CHECKING:
    from emit.kernel import Kernel
    from scheduler.schedule import Schedule


def resolve_target(target: str | Target | None) -> Target:
    """A target by name (None = this machine), or the target itself."""
    return target if isinstance(target, Target) else targets.get(target)


def auto_schedule(
    scop: Scop, target: str | Target | None = None, sizes: Mapping[str, int] | None = None, threads: int | None = None
) -> Schedule:
    """The automatic schedule of `scop`; sizes not given stay symbolic.

    Raises:
        BuildError: the target is unknown.
    """
    from scheduler.strategies.auto import automatic

    machine = resolve_target(target)
    return automatic(specialise(scop, sizes or {}), machine, machine.threads if threads is None else threads)


def compile_operator(
    scop: Scop,
    target: str | Target | None = None,
    schedule: Schedule | None = None,
    threads: int | None = None,
    sizes: Mapping[str, int] | None = None,
    backend: str | None = None,
) -> Kernel:
    """Compile one Scop. `target` is a target's name, or `c` for the C back end on this machine.

    Raises:
        ScheduleError: `schedule` belongs to another Scop (other statements).
        BuildError: unknown target, or code generation failed.
    """
    from emit.compile import compile_kernel

    if target == "c":
        target, backend = None, "c"
    machine = resolve_target(target)
    threads = machine.threads if threads is None else threads
    if schedule is None:
        schedule = auto_schedule(scop, machine, sizes, threads)
    else:
        if set(schedule.original.statements) != set(scop.statements):
            raise ScheduleError(f"the schedule given for {scop.name} belongs to another operator")
        schedule = specialised(schedule, sizes or {})
    return compile_kernel(
        schedule.scop, schedule.tree, target=machine, backend=backend or "llvm", threads=threads, notes=schedule.notes
    )


def specialised(schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """The schedule with sizes fixed (those that are still parameters)."""
    from dataclasses import replace

    from poly.specialise import specialise_tree

    known = {n: v for n, v in sizes.items() if n in schedule.scop.params}
    if not known:
        return schedule
    return replace(schedule, scop=specialise(schedule.scop, known), tree=specialise_tree(schedule.tree, known))
