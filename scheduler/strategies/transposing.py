"""Strategy: elements that are read along one loop and written along another pass through blocks in registers.

Of `Y[i, j] = X[j, i]` a vector loop over `j` would gather, one over `i` scatter. Instead blocks of X, some rows
of a vector each, are loaded into registers and read there by columns, for which `emit/llvm/columns.py` has
shuffles:

    for a.out, b.out                      blocks for caches and the TLB
      for b.in.out, a.in.out
        promote X to registers            (rows along a)
          for a.in.in  (unrolled)
            for b.in.in  (vector)         reads columns of the block

Which loops these are, the access relations alone say; it does not matter what else the statements compute.
(Blocks in registers: Eklundh, "A fast computer method for matrix transposing", IEEE ToC 1972.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyc.poly.expr import Load, loads
from polyc.poly.records import dataclass
from polyc.poly.scop import Statement
from polyc.poly.tree import Member
from polyc.scheduler.cost.cache_blocks import MOST_WORK, SHORTEST_TRANSPOSED, TRANSPOSED
from polyc.scheduler.cost.vector_loops import GATHER, access_cost, iterator, lanes_for, operations, uniform
from polyc.scheduler.recognition.contraction import stride
from polyc.scheduler.strategies.planner import Planner, is_flat
from polyc.scheduler.transformations.storage import users
from polyc.scheduler.transformations.tree_edit import is_dynamic


@dataclass(frozen=True)
class Blocks:
    """Rows of `arrays` run along the loop `along`, what is written along `across`; a block has `width` x `lanes`."""

    along: Member
    across: Member
    arrays: tuple[str, ...]
    width: int
    lanes: int


def transpose(plan: Planner) -> None:
    """Blocks in registers for all nests that have such reads."""
    for loop in plan.top():
        transpose_nest(plan, loop)


def transpose_nest(plan: Planner, loop: str) -> None:
    """Blocks in registers for the nest that begins with a loop, if it has such reads."""
    members, body = plan.nest(loop)
    blocks = _blocks(plan, members) if len(members) > 1 and is_flat(body) else None
    if blocks is not None:
        _propose(plan, members, blocks)


def _blocks(plan: Planner, members: list[Member]) -> Blocks | None:
    """The loops and arrays, if the nest is of this kind."""
    stmts = [plan.scop.statements[s] for s in members[0].schedule]
    if any(s.reduction is not None or s.predicate is not None or s.dynamic for s in stmts):
        return None
    free = [m for m in members if plan.carried()[m.name].parallel and not is_dynamic(plan.scop, m)]
    free = [m for m in free if (plan.extent(m) or TRANSPOSED) >= SHORTEST_TRANSPOSED]
    if sum(operations(s.value) for s in stmts) > MOST_WORK:
        return None
    for across in reversed(free):
        written = [s for s in stmts if not _passing(plan, s.array, members)]
        if not all(_contiguous(s.target, s, across) for s in written):
            continue
        for along in reversed(free):
            reads = ((load, s) for s in stmts for load in loads(s.value))
            found = {x.array for x, s in reads if _contiguous(x, s, along) and _scattered(x, s, across)}
            arrays = tuple(sorted(a for a in found if _alike(stmts, a)))
            if arrays and along is not across and uniform(plan.scop, across, along):
                return _sized(plan, along, across, arrays)
    return None


def _contiguous(load: Load, stmt: Statement, loop: Member) -> bool:
    name = iterator(stmt, loop.schedule[stmt.name])
    return name is not None and stride(load, name, 1) == 1


def _scattered(load: Load, stmt: Statement, loop: Member) -> bool:
    name = iterator(stmt, loop.schedule[stmt.name])
    return name is None or access_cost(load, name, 2, False) == GATHER


def _passing(plan: Planner, array: str, members: list[Member]) -> bool:
    """Whether the array only hands values on within the nest (it will be contracted)."""
    return plan.scop.arrays[array].kind == "local" and users(plan.scop, array) <= set(members[0].schedule)


def _alike(stmts: list[Statement], array: str) -> bool:
    """Whether the statements only read the array, all at one place."""
    places = {load.index for s in stmts for load in loads(s.value) if load.array == array}
    return len(places) == 1 and all(s.array != array for s in stmts)


def _sized(plan: Planner, along: Member, across: Member, arrays: tuple[str, ...]) -> Blocks | None:
    """Rows of a whole vector, as many as leave half of the registers free."""
    target, scop = plan.target, plan.scop
    lanes = min(lanes_for(scop, across.schedule, plan.extent(across), target), target.vector_registers // 2)
    width = max(target.lanes(scop.arrays[a].dtype.bits) for a in arrays)
    while width > 2 and width // 2 >= (plan.extent(along) or TRANSPOSED):
        width //= 2
    rows = lanes * sum(-(-width * scop.arrays[a].dtype.bits // target.vector_bits) for a in arrays)
    return Blocks(along, across, arrays, width, lanes) if lanes > 1 and rows <= target.vector_registers else None


def _propose(plan: Planner, members: list[Member], blocks: Blocks) -> None:
    plan.attempt(
        f"nest {members[0].name}", f"{', '.join(blocks.arrays)} by blocks of {blocks.lanes} rows of {blocks.width} "
        f"({blocks.along.name}) in registers, read by columns ({blocks.across.name})",
        lambda s: s.batch(*_steps(plan, members, blocks)), rows=blocks.lanes, width=blocks.width, block=TRANSPOSED,
    )  # fmt: skip


def _steps(plan: Planner, members: list[Member], blocks: Blocks) -> Iterator[tuple[str, dict[str, Any]]]:
    for m in members:
        if m.kind == "vector":
            yield "serial", {"loop": m.name}
    outer: list[str] = []
    inner: list[str] = []
    innermost: list[str] = []
    for m, size in ((blocks.along, blocks.width), (blocks.across, blocks.lanes)):
        name, extent = m.name, plan.extent(m)
        if extent is None or extent > TRANSPOSED and size < TRANSPOSED:
            yield "split", {"loop": name, "size": TRANSPOSED}
            outer.append(f"{name}.out")
            name += ".in"
        yield "split", {"loop": name, "size": size}
        inner.insert(0, f"{name}.out")
        innermost.append(f"{name}.in")
    others = [m.name for m in members if m not in (blocks.along, blocks.across)]
    yield "permute", {"loops": [*others, *outer, *inner, *innermost]}
    yield "unroll", {"loop": innermost[0]}
    yield "vectorize", {"loop": innermost[1], "lanes": blocks.lanes}
    for array in blocks.arrays:
        yield "promote", {"array": array, "at": inner[-1], "space": "register"}
