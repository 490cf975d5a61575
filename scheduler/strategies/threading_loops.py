"""Strategy: run the outermost loop that carries nothing on all threads."""

from __future__ import annotations

from functools import partial
from typing import Any

from polyc.poly.tree import Band, Member, Node, loops_below, walk
from polyc.scheduler.cost.sharing import CHUNK_VECTORS, CHUNKS, LEAST_SHARE, LINE, WORTH
from polyc.scheduler.cost.vector_loops import operations
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.cutting import cut_for_threads
from polyc.scheduler.strategies.planner import Planner, first_loops
from polyc.scheduler.strategies.serial import carried_by
from polyc.scheduler.transformations.tree_edit import is_dynamic


def parallelise(plan: Planner) -> None:
    """Mark one parallel loop per nest, where there is enough work."""
    if plan.threads < 2:
        return
    for loop in plan.top():
        _say_why(plan, loop)
        _nest(plan, loop)


def _nest(plan: Planner, loop: str, depth: int = 0) -> None:
    members, body = plan.nest(loop)
    for k, m in enumerate(members):
        if m.kind == "parallel":  # an earlier strategy has shared the work
            return
        if not plan.carried()[m.name].parallel or plan.extent(m) in (0, 1):
            continue
        amount = _work(plan, members[0] if m.kind == "vector" and depth == 0 else m)  # (chunks go outside of all)
        if amount is not None and amount < WORTH:
            plan.decline(
                f"loop {m.name}", "not parallel", f"about {amount:.0f} operations are too few",
                operations=amount, worth=WORTH,
            )  # fmt: skip
        elif m.kind != "vector":
            name = m.name
            plan.attempt(
                f"loop {name}", f"parallel loop {name}", partial(Schedule.parallel, loop=name),
                operations=amount, threads=plan.threads,
            )  # fmt: skip
        elif depth == 0:
            _chunks(plan, m, [x.name for x in members[:k]])
        else:
            plan.decline(f"loop {m.name}", "not parallel", "a single loop inside serial ones has too little work")
        return
    share = _shared(plan, loop)
    if share is not None and share[1] < LEAST_SHARE * share[0]:
        halves = _halves(plan, members)
        for half in halves:
            _nest(plan, half, depth + len(members))
        if halves:
            return
    if share is not None and 0.0 < share[1] < LEAST_SHARE * share[0]:
        plan.decline(
            f"loop {loop}", "nothing in it is parallel",
            f"threads could share {share[1] / share[0]:.0%} of its operations, and the rest moves data between caches",
            operations=share[0], shared=share[1], least=LEAST_SHARE,
        )  # fmt: skip
        return
    for inner in first_loops(body):
        _nest(plan, inner, depth + len(members))


def _say_why(plan: Planner, loop: str) -> None:
    """Two instances for each loop of a nest that forbid sharing its iterations, where a statement has no other."""
    carried = plan.carried()
    nest = plan.member(loop)
    inside = (nest, *_inside(plan.tree, loop))
    serial = {n for n in nest.schedule if not any(carried[m.name].parallel for m in inside if n in m.schedule)}
    for m in inside:
        if serial.isdisjoint(m.schedule) or carried[m.name].parallel:
            continue
        found = carried_by(plan, m, updates=True)
        if found is None:
            plan.decline(f"loop {m.name}", "not parallel", "it carries a dependence")
            continue
        plan.decline(
            f"loop {m.name}", "not parallel", f"it carries a dependence: {found.why}",
            source=[found.source[0], *found.source[1]], sink=[found.sink[0], *found.sink[1]], sizes=dict(found.params),
        )  # fmt: skip


def _halves(plan: Planner, members: list[Member]) -> list[str]:
    """The two halves of the outermost of nested loops that carries conflicts with one iteration only, if each iteration
    of the loops around it has enough work; both are free then."""
    for m in members[1:]:
        amount = _work(plan, m)
        if m.kind != "serial" or is_dynamic(plan.scop, m) or amount is None or amount < 2 * WORTH:
            continue
        halves = cut_for_threads(plan, m)
        if halves:
            return halves
    return []


def _chunks(plan: Planner, m: Member, around: list[str]) -> None:
    """Chunks of a vector loop become the parallel loop, moved outside the serial loops around it."""
    name, out = m.name, f"{m.name}.out"
    size, extent = (m.factor or 1) * CHUNK_VECTORS, plan.extent(m)
    if around and extent is not None:  # each chunk runs through the loops around: few are enough
        size = min(size, -(-extent // (plan.threads * CHUNKS * LINE)) * LINE)
    steps: list[tuple[str, dict[str, Any]]] = [("split", {"loop": name, "size": size})]
    if around:
        steps.append(("permute", {"loops": [out, *around]}))
    steps.append(("parallel", {"loop": out}))
    plan.attempt(
        f"loop {name}", f"parallel loop {out}, chunks of {size}", lambda s: s.batch(*steps),
        chunk=size, threads=plan.threads,
    )  # fmt: skip


def share_columns(plan: Planner, members: list[Member], loop: str) -> str | None:
    """Share chunks of a loop that is to be distributed inside serial ones of its nest; the first of these then.

    The chunks go outside of the serial loops, so that threads meet once. Afterwards each part would be a parallel loop
    of its own in every iteration of the serial loops, over other elements than the part before, or none.
    """
    k = [m.name for m in members].index(loop)
    outwards, extent, around = members[:k], plan.extent(members[k]), plan.around(loop)
    if plan.threads < 2 or not outwards or extent is None or not plan.carried()[loop].parallel:
        return None
    if any(m.kind == "parallel" or plan.carried()[m.name].parallel for m in around):
        return None
    amount = _work(plan, outwards[0])
    size = -(-extent // (plan.threads * CHUNKS * LINE)) * LINE
    if amount is None or amount < WORTH or size >= extent:
        return None
    out = f"{loop}.out"
    steps: list[tuple[str, dict[str, Any]]] = [
        ("strip_mine", {"loop": loop, "size": size}),
        ("permute", {"loops": [out, *(m.name for m in outwards)]}),
        ("parallel", {"loop": out}),
    ]
    done = plan.attempt(
        f"loop {loop}", f"parallel loop {out}, chunks of {size}", lambda s: s.batch(*steps),
        chunk=size, operations=amount, threads=plan.threads,
    )  # fmt: skip
    return outwards[0].name if done else None


def _shared(plan: Planner, loop: str) -> tuple[float, float] | None:
    """Operations of one run of a nest, and how many of them are in loops that threads could share; None: by sizes."""
    members, body = plan.nest(loop)
    total, runs = _work(plan, members[0]), 1.0
    if total is None:
        return None
    for m in members:
        extent = plan.extent(m)
        if m.kind == "parallel":
            return total, total
        if plan.carried()[m.name].parallel and extent not in (0, 1):
            amount = _work(plan, m)
            return total, total if m.kind != "vector" and amount is not None and amount >= WORTH else 0.0
        if extent is None:
            return None
        runs *= extent
    inside = [_shared(plan, inner) for inner in first_loops(body)]
    return None if None in inside else (total, runs * sum(s[1] for s in inside if s is not None))


def _work(plan: Planner, loop: Member) -> float | None:
    """Scalar operations of one complete run of the loop; None when it depends on sizes."""
    total = 0.0
    inside = _inside(plan.tree, loop.name)
    for s in loop.schedule:
        amount = operations(plan.scop.statements[s].value) + 1.0
        for m in (loop, *inside):
            if s in m.schedule:
                extent = plan.extent(m, [s])
                if extent is None:
                    return None
                amount *= extent
        total += amount
    return total


def _inside(tree: Node, loop: str) -> list[Member]:
    """All loops below a loop."""
    for node in walk(tree):
        if isinstance(node, Band):
            names = [m.name for m in node.members]
            if loop in names:
                below = loops_below(node.child)
                return [*node.members[names.index(loop) + 1 :], *below]
    return []
