"""The automatic schedule: strategies in a list, each proposal checked, each decision noted; CPUs and GPUs alike.

Works on the program's own tree rather than on that of isl's scheduler, which fuses too much. Within an isl quota; when
it runs out the last legal schedule stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from polyc.poly.budgets import AUTOMATIC, AUTOMATIC_GPU, OverBudget, scaled
from polyc.poly.depth import nested
from polyc.poly.dtypes import i32
from polyc.poly.expr import Binary, Const, Var, loads
from polyc.poly.interrupts import interruptible
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.target import GpuTarget, Target
from polyc.poly.tree import Sequence, loop_names, loops_below
from polyc.scheduler.recognition.contraction import recognise, recognise_sweep
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.blocked import block_eliminations
from polyc.scheduler.strategies.blocking import block
from polyc.scheduler.strategies.chains import chains
from polyc.scheduler.strategies.contractions.strategy import contractions
from polyc.scheduler.strategies.gathering import gather
from polyc.scheduler.strategies.joining import join, join_lines
from polyc.scheduler.strategies.planner import Chained, Plan, Planner, first_loops
from polyc.scheduler.strategies.row_values import row_values
from polyc.scheduler.strategies.shrinking import shrink
from polyc.scheduler.strategies.threading_loops import parallelise
from polyc.scheduler.strategies.time_tiles import sweep
from polyc.scheduler.strategies.transposing import transpose
from polyc.scheduler.strategies.vectorising import vectorise_each


def automatic(scop: Scop, target: Target | GpuTarget, threads: int = 1) -> Schedule:
    """A legal schedule for any Scop: SIMD, fusion, contraction of intermediates, threads, blocks; on a GPU fused
    nests, each bound to the blocks and threads of one launch (`threads` means nothing there).

    `notes` of the result say what was done and what was declined, with the reason.

    Raises:
        OverBudget: the schedule is nested too deeply to be handed on.
    """
    plan = _planned(scop, target, threads)
    with nested(scop.name):
        return replace(plan.schedule, terse=False)


LEFT_OUT = ("chains", "product blocks", "contraction", "tiling", "sweeps", "storage")
"""Strategies that cut loops into tiles: most of the time that a kernel takes to compile."""


def untiled(scop: Scop, target: Target, threads: int = 1) -> Schedule | None:
    """The automatic schedule without tiles, for a CPU: its kernel takes a tenth to a half of the time to compile, and
    contractions in it 2 to 14 times as long to run (Zen 4). None where there is no contraction: it is `automatic`'s.

    Raises:
        OverBudget: the schedule is nested too deeply to be handed on.
    """
    if not any(recognise(s) or recognise_sweep(s) for s in scop.statements.values()):
        return None
    plan = _planned(scop, target, threads, [name for name in STRATEGIES if name not in LEFT_OUT])
    plan.decline("contractions", "no tiles", "the kernel is to be made soon")
    with nested(scop.name):
        return replace(plan.schedule, terse=False)


@dataclass(frozen=True)
class Proposal:
    """What the scheduler makes of a Scop, for those who choose what belongs into one.

    Attributes:
        nests: loop nests, one after another.
        chains: the contractions that run block by block in one nest, so that what is between them stays on chip.
        reasons: why more was not joined, the last reason of each stage.
    """

    nests: int
    chains: tuple[Chained, ...]
    reasons: Mapping[str, str]


def propose(scop: Scop, target: Target | GpuTarget, stages: Collection[str] = ()) -> Proposal:
    """The proposal for one thread; with `stages` these only are run (names as in `STRATEGIES`)."""
    plan = _planned(scop, target, 1, stages)
    return Proposal(len(first_loops(plan.tree)), tuple(plan.chains), plan.refusals)


def _planned(scop: Scop, target: Target | GpuTarget, threads: int, only: Collection[str] = ()) -> Plan:
    """The plan after all strategies of the machine, or after some of them."""
    start = replace(Schedule.of(scop, gpu=isinstance(target, GpuTarget)), terse=True)
    plan: Any
    strategies: Mapping[str, Callable[[Any], None]]
    if isinstance(target, GpuTarget):
        from polyc.scheduler.strategies.gpu.stages import GPU_STRATEGIES, GpuPlan

        plan, strategies, operations = GpuPlan(start, target), GPU_STRATEGIES, scaled(AUTOMATIC_GPU)
    else:
        plan, strategies, operations = Planner(start, target, threads), STRATEGIES, scaled(AUTOMATIC)
    try:
        with interruptible(), quota(operations), nested(scop.name):
            for plan.stage, strategy in strategies.items():
                if not only or plan.stage in only:
                    strategy(plan)
    except QuotaExceeded as error:
        subject = "isl quota used up" if error.spent else "isl failed"
        _stands(plan, subject, str(error), operations=operations)
    except OverBudget as error:
        _stands(plan, "nested too deeply", str(error))
    return plan


def _stands(plan: Plan, subject: str, why: str, **figures: Any) -> None:
    """The plan goes no further."""
    done = "the schedule so far" if plan.schedule.trace else "program order"
    plan.decline(subject, f"{done} stands", why, **figures)


def waste(plan: Planner) -> None:
    """Nothing that no result needs, and nothing twice (`strategies/waste.py`); only values that are passed on from
    statement to statement, or overwritten, can be either."""
    plain = [s.array for s in plan.scop.statements.values() if s.reduction is None]
    if any(a.kind == "local" for a in plan.scop.arrays.values()) or len(set(plain)) < len(plain):
        from polyc.scheduler.strategies.waste import eliminate

        eliminate(plan)


def loop_form(plan: Plan) -> None:
    """Loops, choices and named values in their normal form (`strategies/loop_form.py`); most programs have it."""
    if not all(_is_plain(plan.scop, s) for s in plan.scop.statements.values()):
        from polyc.scheduler.strategies.loop_form import normal_form_of_loops

        normal_form_of_loops(plan)


def _is_plain(scop: Scop, s: Statement) -> bool:
    """Whether a statement has all its iterators as subscripts, without offsets, and gives no scalar a value."""
    array = scop.arrays[s.array]
    if s.predicate is not None or s.dynamic or (array.kind == "local" and array.expanded):
        return False
    subscripts = {e for index in (s.index, *(x.index for x in loads(s.value))) for e in index}
    found = {e.name for e in subscripts if isinstance(e, Var)}
    return found.issuperset(s.iters) and all(isinstance(e, (Var, Const)) for e in subscripts)


def words(plan: Planner) -> None:
    """Products of narrow integers two or four at a time (`strategies/words.py`)."""
    sums = (s for s in plan.scop.statements.values() if s.reduction == "+" and s.value.dtype == i32)
    if any(isinstance(x, Binary) and x.op == "*" for s in sums for x in s.value.children()):
        from polyc.scheduler.strategies.words import products_of_words

        products_of_words(plan)


def private_arrays(plan: Planner) -> None:
    """Working arrays for each iteration (`strategies/privatising.py`); scalars of the source are so from the start."""
    if any(a.kind == "local" and len(a.shape) > a.expanded for a in plan.scop.arrays.values()):
        from polyc.scheduler.strategies.privatising import privatise

        privatise(plan)


def reading_order(plan: Planner) -> None:
    """Local arrays in the order in which sums read them (`strategies/reading_order.py`)."""
    if any(a.kind == "local" and a.shape for a in plan.scop.arrays.values()):
        from polyc.scheduler.strategies.reading_order import store

        store(plan)


def product_blocks(plan: Planner) -> None:
    """Products with the nests that they take local arrays from (`strategies/product_blocks.py`)."""
    if any(a.kind == "local" for a in plan.scop.arrays.values()):
        from polyc.scheduler.strategies.product_blocks import in_blocks_with_neighbours

        in_blocks_with_neighbours(plan)


def outer_loops(plan: Planner) -> None:
    """Outer loops in the order of the arrays (`strategies/outer_order.py`), and nests of the same lines as one."""
    if not plan.claimed.issuperset(plan.scop.statements):
        from polyc.scheduler.strategies.outer_order import outer_order

        outer_order(plan)
        join_lines(plan)


def vector_loops(plan: Planner) -> None:
    """One vector loop per innermost nest."""
    vectorise_each(plan, plan.top())


def column_blocks(plan: Planner) -> None:
    """Steps over all columns behind them, in blocks (`strategies/columns.py`)."""
    if any(isinstance(plan.nest(loop)[1], Sequence) for loop in plan.top()):
        from polyc.scheduler.strategies.columns import columns

        columns(plan)


def short_loops(plan: Planner) -> None:
    """Short loops written out (`strategies/short_loops.py`); tiles have theirs."""
    if not plan.claimed.issuperset(plan.scop.statements):
        from polyc.scheduler.strategies.short_loops import write_out

        write_out(plan)


STRATEGIES: Mapping[str, Callable[[Planner], None]] = {
    "waste": waste,
    "loops": loop_form,
    "words": words,
    "private arrays": private_arrays,
    "reading order": reading_order,
    "gathering": gather,
    "chains": chains,
    "product blocks": product_blocks,
    "elimination": block_eliminations,
    "contraction": contractions,
    "columns": column_blocks,
    "rows": row_values,
    "order": outer_loops,
    "vector": vector_loops,
    "fusion": join,
    "transposition": transpose,
    "tiling": block,
    "sweeps": sweep,
    "short loops": short_loops,
    "storage": shrink,
    "threads": parallelise,
}
"""For a CPU, in this order; the names are the stages of the decisions."""


def marked(schedule: Schedule, kind: str) -> tuple[str, ...]:
    """Names of the loops of one kind (for reports and tests)."""
    found = {m.name for m in loops_below(schedule.tree) if m.kind == kind}
    return tuple(n for n in loop_names(schedule.tree) if n in found)
