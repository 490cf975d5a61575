"""Schedules for the matrix unit: products are tiled, their tiles have buffers; all by steps that a user may write."""

from __future__ import annotations

from polyc.poly.errors import PolycError
from polyc.poly.scop import Scop
from polyc.poly.tree import loops_around
from polyc.scheduler.decision import Decision
from polyc.scheduler.recognition.contraction import Contraction, recognise
from polyc.scheduler.schedule import Schedule
from polyc_toy.machine import Toy


def schedule_for(scop: Scop, machine: Toy) -> Schedule:
    """The program's own order, but products in tiles with their operands in the scratchpad. What is no product of
    matrices stays as it is, and a decision says why."""
    s = Schedule.start(scop)
    for name, statement in scop.statements.items():
        product = recognise(statement)
        if product is None:
            continue
        try:
            s = tiled(s, name, product, machine).noted(Decision("toy", name, f"{name} runs on the matrix unit"))
        except PolycError as error:
            why = str(error).splitlines()[0]
            s = s.noted(Decision("toy", name, "the scalar unit runs it", "declined", why))
    return s


def tiled(s: Schedule, name: str, product: Contraction, machine: Toy) -> Schedule:
    """Before -> after: `i: j: k: C += A * B` -> `i.out: j.out: (C tile; k.out: (A tile; B tile; i.in: j.in: k.in))`.

    Raises:
        PolycError: the matrix unit cannot do it, or a step is refused.
    """
    left, right = product.operands
    arrays = (s.scop.statements[name].array, left.load.array, right.load.array)
    if any(s.scop.arrays[a].dtype.name != "f32" for a in arrays):
        raise PolycError("the matrix unit is for f32")
    if not (left.own and right.own and product.inner):
        raise PolycError("it is no product of two matrices")
    if 3 * machine.unit**2 * 4 > machine.scratchpad:
        raise PolycError(f"three tiles take {3 * machine.unit**2 * 4} bytes, the scratchpad has {machine.scratchpad}")
    cut = [left.own[-1], right.own[-1], product.inner[0]]
    s = apart(s, name)
    loops = dict(zip(s.scop.statements[name].iters, (m.name for m in loops_around(s.tree, name)), strict=True))
    order = [*(loop for i, loop in loops.items() if i not in cut), *(loops[i] for i in cut)]
    if order != list(loops.values()):
        s = s.permute(order)
    s = s.tile(order[-3:], machine.unit)
    blocks = [m.name for m in loops_around(s.tree, name)][-6:-3]
    result, *operands = arrays
    s = s.promote(result, at=blocks[1])
    for array in operands:
        s = s.promote(array, at=blocks[2])
    return s


def apart(s: Schedule, name: str) -> Schedule:
    """The statement in loops of its own, the inner ones first."""
    for depth in reversed(range(len(loops_around(s.tree, name)))):
        loop = loops_around(s.tree, name)[depth]
        if len(loop.schedule) > 1:
            s = s.distribute(loop.name)
    return s
