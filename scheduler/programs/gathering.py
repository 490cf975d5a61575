"""`gather_sums`: the updates of a nest that scatter run over the elements that they update, each in loops of its own.

What a reverse-mode derivative makes of a read `A[f(i)]` is an update `A[f(i)] += ...` beside the others of its
statement: no loop around them is parallel. Each in loops of its own, over elements and sums (step `gather`), they are
what a compiler of forward code knows: contractions, stencils, reductions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from polyc.poly.errors import ScheduleError
from polyc.poly.rewriting.gather import coordinates, scatters, strides
from polyc.poly.tree import Band, loop_names, loops_around
from polyc.poly.tree import Sequence as SequenceNode
from polyc.scheduler.programs.distribution import distribute_all
from polyc.scheduler.programs.row_lanes import first_iteration
from polyc.scheduler.questions.coincidence import all_pairs, analyse
from polyc.scheduler.recognition.contraction import recognise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import chain_of, locate

Form = Literal["elements", "phases"]


def gather_sums(s: Schedule, loop: str, forms: Mapping[str, Form] | None = None) -> Schedule:
    """Run the updates of a nest that scatter over the elements that they update.

    Arguments: `loop`, the outermost one of the nest; `forms`, by statement: `elements`, or `phases` where subscripts
    have a stride; default phases where there are any, for all updates whose subscripts mix loops.
    Before -> after: `o: k: (X[2 * o + k] += g[o] * w[k]; W[k] += g[o] * x[o + k])` -> phases of X, then `o: k: W[k]`.
    Refused when: a dependence would run backwards; data decide the element.
    """
    s = in_loops_of_their_own(s, loop)
    chosen = mixed(s, loop) if forms is None else forms
    for name, form in chosen.items():
        known = set(s.scop.statements) - {name}
        s = s.gather(name, phases=form == "phases")
        for part in [n for n in s.scop.statements if n not in known]:
            if recognise(s.scop.statements[part]) is not None:  # its tiles hold the sums, in a nest of its own
                s = in_loops_of_their_own(s, _own_nest(s, part))
    return s


def _own_nest(s: Schedule, statement: str) -> str:
    """The outermost loop around a phase that no other phase is in."""
    around = loops_around(s.tree, statement)
    fewest = min(len(m.schedule) for m in around[: len(s.scop.statements[statement].index)])
    return next(m.name for m in around if len(m.schedule) == fewest)


def mixed(s: Schedule, loop: str) -> dict[str, Form]:
    """The updates of a nest whose subscripts mix loops, and the form that a stride asks for."""
    found: dict[str, Form] = {}
    for name in locate(s.tree, loop).member.schedule:
        stmt = s.scop.statements[name]
        if stmt.reduction is not None and not stmt.dynamic and scatters(stmt, s.scop):
            stride = strides(coordinates(s.scop, stmt)[0])
            found[name] = "phases" if max(stride, default=1) > 1 else "elements"
    return found


def in_loops_of_their_own(s: Schedule, loop: str) -> Schedule:
    """The parts of a nest in loops of their own, as far outside as their dependences let them."""
    chain = chain_of(s.tree, loop)
    if not isinstance(chain.child, SequenceNode):
        return s
    try:
        return s.in_one_check(lambda new: distribute_all(new, loop), f"distribute_all({loop!r})")
    except ScheduleError:
        pass
    for part in chain.child.filters:
        if isinstance(part.child, Band):
            s = in_loops_of_their_own(s, part.child.members[0].name)
    return s


def rows_together(s: Schedule, loop: str) -> Schedule:
    """Run the updates of a nest that its outermost loop carries after all others, which share that loop again.

    Arguments: `loop`, the outermost one of a nest at the top.
    Before -> after: `r: (k: (G[r, k] = ...; W[k] += ...); ...)` -> `r: (k: G[r, k] = ...; ...); r_1: k: W[k] += ...`.
    Refused when: dependences lead around in a circle, or from those updates to the others.
    """
    names = list(locate(s.tree, loop).member.schedule)
    s = distribute_all(s, loop)
    carried = analyse(s.tree, all_pairs(s.scop))
    heads = list(dict.fromkeys(n for n in loop_names(s.tree) for x in names if loops_around(s.tree, x)[0].name == n))
    rows = [h for h in heads if carried[h].parallel]
    if not rows or len(rows) == len(heads):
        raise ScheduleError(f"loop '{loop}' carries all or nothing of its nest")
    order = [*rows, *(h for h in heads if h not in rows)]
    if order != heads:
        s = s.reorder_statements(order)
    for other in rows[1:]:
        s = s.fuse(rows[0], other)
    return s


def partial_sums(s: Schedule, loop: str, rows: int) -> Schedule:
    """Run blocks of a loop that carries nothing but sums in parallel, each with sums of its own (step `rfactor`).

    What a row reads is read once; `rows_together` needs no such sums but reads it twice.

    Arguments: `loop`, the outermost one of a nest; `rows`, how many of its iterations make a block.
    Before -> after: `r: k: W[k] += ...` -> `r.out: r.in: k: V[r.out, k] += ...; k: r.out: W[k] += V[r.out, k]`, the
    loop `r.out` parallel.
    Refused when: iterations depend on one another in more than sums; sums must not be reassociated.
    """
    first = first_iteration(s, loop)
    if first:  # else the blocks would not be equal
        s = s.shift(loop, -first)
    s = s.split(loop, rows)
    blocks = f"{loop}.out"
    return s.rfactor(blocks, first=True).parallel(blocks)
