"""An independent check of a plan before its addresses are trusted (loaded plans above all)."""

from __future__ import annotations

from bisect import bisect_left

from polyc.graph_driver import memory
from polyc.graph_driver.graph.limits import MAX_TENSOR_BYTES
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.slots import Slot
from polyc.poly.dtypes import BY_NAME
from polyc.poly.rewriting.stored import is_layout, laid_out_shape


def check_plan(plan: Plan[int], symbols: set[str], hosts: int, table: int = 0) -> None:
    """Every slot lies inside its memory, every step refers to what exists, nothing overlaps, in any allowed order.

    `table`: bytes of the table that a run has.

    Raises:
        PlanError: the first violation.
    """
    for slot in plan.slots.values():
        _check_slot(plan, slot, table)
    for name in plan.inputs:
        if name not in plan.slots or plan.slots[name].place.kind not in ("input", "host"):
            raise memory.PlanError(f"input '{name}' has no place")
    for name in plan.outputs:
        if name not in plan.slots:
            raise memory.PlanError(f"output '{name}' has no place")
    for k, step in enumerate(plan.steps):
        for name in (*step.args, *step.captures, *step.scratch):
            if name not in plan.slots:
                raise memory.PlanError(f"step {k} uses '{name}', which has no place")
        native = all(plan.slots[a].dtype is not None for a in step.args)
        if step.kind == "kernel" and (step.symbol not in symbols or not native):
            raise memory.PlanError(f"step {k} calls code that is not there")
        if any(plan.slots[n].place.kind != "arena" for n in step.scratch if n in plan.slots):
            raise memory.PlanError(f"step {k} has scratch memory outside of the arena")
        if step.kind == "copy" and (len(step.args) != 2 or not native):
            raise memory.PlanError(f"step {k} is not a copy")
        if step.kind in ("host", "control") and not 0 <= step.index < hosts:
            raise memory.PlanError(f"step {k} calls a host operator that is not there")
        if step.kind not in ("kernel", "copy", "host", "control"):
            raise memory.PlanError(f"step {k} has the unknown kind '{step.kind}'")
    offsets = {t.name: plan.offset_of(t.name) for t in plan.lifetimes}
    memory.check_placement(plan.lifetimes, memory.Placement(offsets, plan.peak), overlaps=plan.overlaps)
    _check_contents(plan)
    _check_arguments(plan)
    check_tasks(plan)


def _check_slot(plan: Plan[int], slot: Slot[int], table: int) -> None:
    if slot.dtype is None:
        return
    if slot.dtype not in BY_NAME or slot.shape is None or any(n < 0 for n in slot.shape):
        raise memory.PlanError(f"'{slot.name}' has no valid type")
    if slot.layout is not None and not is_layout(slot.shape, slot.layout):
        raise memory.PlanError(f"'{slot.name}' has no valid layout")
    size = BY_NAME[slot.dtype].bytes
    for extent in slot.shape if slot.layout is None else laid_out_shape(slot.shape, slot.layout):
        size *= extent
    if size != slot.nbytes or size > MAX_TENSOR_BYTES:
        raise memory.PlanError(f"'{slot.name}' has {slot.nbytes} bytes, its shape needs {size}")
    limits = {"arena": plan.peak, "weight": plan.weight_bytes, "table": table}
    place = slot.place
    if place.kind in limits:
        whole = place.kind == "table" or slot.name in plan.inside  # parts of a whole begin at its cache lines
        grain = 8 if place.kind == "table" else memory.ALIGNMENT if whole else plan.alignment
        if place.offset < 0 or place.offset % grain or place.offset + size > limits[place.kind]:
            raise memory.PlanError(f"'{slot.name}' lies outside the {place.kind} memory")
    elif place.kind in ("input", "output"):
        count = len(plan.inputs) if place.kind == "input" else len(plan.outputs)
        if not 0 <= place.index < count or place.offset:
            raise memory.PlanError(f"'{slot.name}' is {place.kind} {place.index} of {count}")
        owner = plan.slots.get((plan.inputs if place.kind == "input" else plan.outputs)[place.index])
        if place.kind == "input" and (owner is None or owner.nbytes != size):
            raise memory.PlanError(f"'{slot.name}' does not fit its input")
    else:
        raise memory.PlanError(f"'{slot.name}' is in unknown memory")


def _check_contents(plan: Plan) -> None:
    """Follow the arena and the results step by step: every byte that a step reads was last written for that tensor.

    Knows nothing of lifetimes: it sees results in place, parts and reuse only by what they do
    to the bytes.
    """
    held: list[tuple[int, int, str, int]] = []  # begin, end, whose memory, where that begins
    made_results: set[int] = set()
    for k, step in enumerate(plan.steps):
        made = {*step.results, *step.scratch}
        for name in dict.fromkeys((*step.args, *step.captures)):
            if name not in made:
                _check_read(plan, held, name, k)
                place = plan.slots[name].place
                if place.kind == "output" and place.index not in made_results:
                    raise memory.PlanError(f"step {k} reads the result '{name}' before it is made")
        made_results |= {
            p.index for n in step.results if n in plan.slots and (p := plan.slots[n].place).kind == "output"
        }
        # Memory of the kernel's own comes first: results may lie over it (`_check_arguments` says where).
        for name in step.scratch:
            slot = plan.slots[name]
            begin, end = slot.place.offset, slot.place.offset + slot.nbytes
            held = [piece for h in held for piece in _without(h, begin, end)]
        for name in step.results:
            span = _span(plan, name)
            if span is not None:
                begin, end, root, base = span
                held = [piece for h in held for piece in _without(h, begin, end)]
                held.append((begin, end, root, base))


def _check_arguments(plan: Plan) -> None:
    """What a step writes has bytes in common with another argument only where the code's gaps allow it.

    Knows nothing of lifetimes either.
    """
    for k, step in enumerate(plan.steps):
        spans = {n: span for n in dict.fromkeys(step.args) if (span := _span(plan, n)) is not None}
        gaps: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for i, j, low, high in plan.gaps.get(step.symbol, ()) if step.kind == "kernel" else ():
            gaps.setdefault((step.args[i], step.args[j]), []).append((low, high))
        for b in dict.fromkeys((*step.results, *step.scratch)):
            for a in spans if b in spans else ():
                (begin, end, root, base), (start, stop, other, origin) = spans[a], spans[b]
                if a == b or end <= start or stop <= begin or (root, base) == (other, origin):
                    continue
                ways = [(begin, start, gaps.get((a, b), []), (a, b)), (start, begin, gaps.get((b, a), []), (b, a))]
                # Two memories of the kernel's own may die into each other either way, a result into none.
                together = step.args.count(a) * step.args.count(b)
                ways = [w for w in ways if len(w[2]) == together and w[3][0] not in step.results]
                if not any(all(not low < y - x < high for low, high in legal) for x, y, legal, _ in ways):
                    raise memory.PlanError(f"step {k} writes '{b}' over '{a}' while it may still need that")


def _span(plan: Plan, name: str) -> tuple[int, int, str, int] | None:
    """The bytes of a tensor in the arena, the tensor whose memory they are, and where that begins."""
    slot = plan.slots.get(name)
    if slot is None or slot.place.kind != "arena" or slot.nbytes == 0:
        return None
    root, at = plan.inside.get(name, (name, 0))
    begin = slot.place.offset
    return begin, begin + slot.nbytes, root, begin - at


def _without(held: tuple[int, int, str, int], begin: int, end: int) -> list[tuple[int, int, str, int]]:
    low, high, root, base = held
    left = [(low, min(high, begin), root, base), (max(low, end), high, root, base)]
    return [piece for piece in left if piece[0] < piece[1]]


def _check_read(plan: Plan, held: list[tuple[int, int, str, int]], name: str, step: int) -> None:
    span = _span(plan, name)
    if span is None:
        return
    begin, end, root, base = span
    known = 0
    for low, high, owner, start in held:
        if low < end and begin < high:
            if (owner, start) != (root, base):
                raise memory.PlanError(f"step {step} reads '{name}', whose memory holds '{owner}' by then")
            known += min(high, end) - max(low, begin)
    if known != end - begin:
        raise memory.PlanError(f"step {step} reads '{name}' before all of it is written")


def check_tasks(plan: Plan) -> None:
    """Steps that may run at the same time leave each other's memory alone: for each byte, what reads it waits for
    the step that wrote it last, and what writes it for all that came before.

    Follows the bytes, not pairs of steps as `polyc.graph_driver.planning.tasks` does.

    Raises:
        PlanError: the first two steps that nothing orders.
    """
    if not plan.after:
        return
    before = closure(plan)
    cuts: dict[tuple[str, int], set[int]] = {}
    touched: list[list[tuple[tuple[str, int], int, int, bool]]] = []
    for step in plan.steps:
        writes = {*step.results, *step.scratch}
        touched.append([])
        for name in dict.fromkeys((*step.args, *step.captures, *step.results, *step.scratch)):
            slot = plan.slots.get(name)
            if slot is None or slot.place.kind not in ("arena", "output", "input"):
                continue
            where: tuple[str, int] = (slot.place.kind, slot.place.index)
            begin, end = slot.place.offset, slot.place.offset + slot.nbytes
            cuts.setdefault(where, set()).update((begin, end))
            touched[-1].append((where, begin, end, name in writes))
    bounds = {where: sorted(found) for where, found in cuts.items()}
    writer: dict[tuple[tuple[str, int], int], int] = {}
    readers: dict[tuple[tuple[str, int], int], list[int]] = {}
    for k, uses in enumerate(touched):
        for where, begin, end, writes_it in sorted(uses, key=lambda u: u[3]):
            inside = bounds[where][bisect_left(bounds[where], begin) : bisect_left(bounds[where], end)]
            for cell in [(where, b) for b in inside]:
                earlier = readers.pop(cell, []) if writes_it else []
                for e in (*earlier, *([writer[cell]] if cell in writer else [])):
                    if e != k and not before[k] >> e & 1:
                        raise memory.PlanError(f"steps {e} and {k} may run together, but share {where[0]} memory")
                if writes_it:
                    writer[cell] = k
                else:
                    readers.setdefault(cell, []).append(k)


def closure(plan: Plan) -> list[int]:
    """For each step a bit mask of those that are done when it begins. Raises `PlanError`."""
    if len(plan.after) != len(plan.steps):
        raise memory.PlanError(f"the order of {len(plan.steps)} steps is given for {len(plan.after)}")
    before: list[int] = []
    barrier = segment = 0
    for k, (step, earlier) in enumerate(zip(plan.steps, plan.after, strict=True)):
        if step.kind in ("host", "control"):
            barrier, segment = (1 << k + 1) - 1, k + 1
            before.append((1 << k) - 1)
            if earlier:
                raise memory.PlanError(f"step {k} runs in Python and waits for all before it, not for some")
            continue
        if any(not segment <= e < k for e in earlier) or len(set(earlier)) != len(earlier):
            raise memory.PlanError(f"step {k} waits for a step that is not before it")
        mask = barrier
        for e in earlier:
            mask |= before[e] | 1 << e
        before.append(mask)
    return before
