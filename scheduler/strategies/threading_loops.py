"""Strategy: run the outermost loop that carries nothing on all threads."""

from __future__ import annotations

from functools import partial
from typing import Any

from polyc.poly.tree import Band, Member, Node, loops_below, walk
from polyc.scheduler.cost.sharing import CHUNK_VECTORS, WORTH
from polyc.scheduler.cost.vector_loops import operations
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.planner import Planner, first_loops


def parallelise(plan: Planner) -> None:
    """Mark one parallel loop per nest, where there is enough work."""
    if plan.threads < 2:
        return
    for loop in plan.top():
        _nest(plan, loop)


def _nest(plan: Planner, loop: str, depth: int = 0) -> None:
    members, body = plan.nest(loop)
    for k, m in enumerate(members):
        if m.kind == "parallel":  # blocks of several sweeps: the threads have their work
            return
        if not plan.carried()[m.name].parallel or plan.extent(m) in (0, 1):
            continue
        amount = _work(plan, m)
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
    for inner in first_loops(body):
        _nest(plan, inner, depth + len(members))


def _chunks(plan: Planner, m: Member, around: list[str]) -> None:
    """Chunks of a vector loop become the parallel loop, moved outside the serial loops around it."""
    name, out = m.name, f"{m.name}.out"
    size = (m.factor or 1) * CHUNK_VECTORS
    steps: list[tuple[str, dict[str, Any]]] = [("split", {"loop": name, "size": size})]
    if around:
        steps.append(("permute", {"loops": [out, *around]}))
    steps.append(("parallel", {"loop": out}))
    plan.attempt(
        f"loop {name}", f"parallel loop {out}, chunks of {size}", lambda s: s.batch(*steps),
        chunk=size, threads=plan.threads,
    )  # fmt: skip


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
