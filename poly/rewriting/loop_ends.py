"""Ends of loops that a comparison of their iterator decides, as their bounds.

    for p in range(Z):                         for p in range(min(Z, ptr[i + 1])):
        if p < ptr[i]: continue         ->         if p >= ptr[i]: S
        if p >= ptr[i + 1]: break
        S

The loop of a `break` has a flag, `left`, and all in it depends on `not left`. Where the flag is set if `p >= x`, and
`x` is the same in all of the loop, it is set from then on: `not left` is `p < x`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import islpy as isl

from polyc.poly.certificates import open_axes
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Const, Expr, Select, Unary, loads, rewrite
from polyc.poly.rewriting.choices import without
from polyc.poly.rewriting.loop_bounds import bound_of, conjuncts, read_before, widened, with_bound
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Sequence, loop_dim, loops_around, walk


def with_ends(scop: Scop, marked: Collection[str]) -> Scop:
    """The program with such conditions; the Scop itself where there are none."""
    for name, s in scop.statements.items():
        if s.value.dtype == bool_ and s.predicate is not None and scop.arrays[s.array].kind == "local":
            new = _without_flag(scop, name, marked)
            if new is not None:
                return with_ends(new, marked)
    return scop


def _without_flag(scop: Scop, setter: str, marked: Collection[str]) -> Scop | None:
    """The program without the flag that a statement sets; None where the flag says something else."""
    s = scop.statements[setter]
    flag = s.target
    found = loop_of(scop, setter, marked)
    users = {n for n, t in scop.statements.items() if n != setter and _reads(t, s.array)}
    starts = [t for n, t in scop.statements.items() if t.array == s.array and n != setter]
    if found is None or s.predicate is None or len(starts) != 1 or not starts_before(scop, starts[0], s):
        return None
    i, inside = found
    others = list(conjuncts(s.predicate))
    if Unary("not", flag, bool_) not in others or not users == inside:
        return None
    others.remove(Unary("not", flag, bool_))
    end = _end(scop, s, i, inside)
    if end is None or any(open_axes(scop, s, x, s.domain) for e in others for x in loads(e)):
        return None
    statements = {n: t for n, t in scop.statements.items() if n not in (setter, starts[0].name)}
    for name in users:
        new = _with_end(scop, statements[name], s, others, i, end)
        if new is None:
            return None
        statements[name] = new
    tree = without(without(scop.tree, setter), starts[0].name)
    return replace(
        scop, statements=statements, tree=tree, arrays={n: a for n, a in scop.arrays.items() if n != s.array}
    )


def starts_before(scop: Scop, start: Statement, setter: Statement) -> bool:
    """Whether a statement clears the flag before the loop of another one that sets it, in each iteration around."""
    around = loops_around(scop.tree, setter.name)[:-1]
    if start.value != Const(False, bool_) or start.predicate is not None or start.iters != setter.iters[: len(around)]:
        return False
    if [m.name for m in loops_around(scop.tree, start.name)] != [m.name for m in around]:
        return False
    first, rest = len(around), len(setter.iters) - len(around)
    entered = setter.domain.project_out(isl.dim_type.set, first, rest).set_tuple_name(start.name)
    if not entered.is_subset(start.domain) or start.dynamic != setter.dynamic[: len(start.dynamic)]:
        return False
    for node in walk(scop.tree):
        if isinstance(node, Sequence):
            places = [k for k, part in enumerate(node.filters) if alone(part, start.name)]
            if places:
                return any(setter.name in part.domain for part in node.filters[places[0] + 1 :])
    return False


def _reads(s: Statement, array: str) -> bool:
    every = (s.value, *s.index, *(() if s.predicate is None else (s.predicate,)))
    return any(x.array == array for e in (*every, *(b for d in s.dynamic for b in (d.lo, d.hi))) for x in loads(e))


def loop_of(scop: Scop, setter: str, marked: Collection[str]) -> tuple[str, set[str]] | None:
    """The iterator of the loop around a statement, which is the first part of it, and what is after it there."""
    for node in walk(scop.tree):
        if isinstance(node, Band) and isinstance(node.child, Sequence) and alone(node.child.filters[0], setter):
            m = node.members[-1]
            around = loops_around(scop.tree, setter)
            for name in m.schedule:  # the iterators have the same names in all statements
                t = scop.statements[name]
                own = [_iterator(t, x.schedule[name]) for x in around]
                if None in own or own != [_iterator(scop.statements[setter], x.schedule[setter]) for x in around]:
                    return None
            i = _iterator(scop.statements[setter], m.schedule[setter])
            return None if i is None or m.name in marked else (i, set(m.schedule) - {setter})
    return None


def _iterator(s: Statement, time: object) -> str | None:
    return next((i for k, i in enumerate(s.iters) if loop_dim(s.domain, k).plain_is_equal(time)), None)


def alone(part: Filter, name: str) -> bool:
    """Whether a part of a sequence is one statement, and no loop."""
    return isinstance(part.child, Leaf) and set(part.domain) == {name}


def _end(scop: Scop, s: Statement, i: str, inside: set[str]) -> Expr | None:
    """The number from which on the flag is set."""
    found = bound_of(widened(s.value, s.domain), i)
    if found is None or len(found[0]) != 1:
        return None
    known = set(s.iters[: s.iters.index(i)]) | set(scop.params)
    written = {scop.statements[n].array for n in inside} | {s.array}
    by_data = any(True for _ in loads(found[0][0]))
    return found[0][0] if by_data and read_before(scop, s, i, found[0][0], known, written) else None


def _with_end(scop: Scop, t: Statement, setter: Statement, others: list[Expr], i: str, end: Expr) -> Statement | None:
    """A statement with the end as a bound for the flag, None where it happens though the flag may not have been looked
    at."""
    not_left = Unary("not", setter.target, bool_)

    def new(e: Expr) -> Expr:
        return e.a if isinstance(e, Select) and e.cond == not_left else e  # bounds of loops inside

    t = replace(t, dynamic=tuple(replace(d, lo=rewrite(d.lo, new), hi=rewrite(d.hi, new)) for d in t.dynamic))
    if t.predicate is None or _reads(replace(t, predicate=None), setter.array):
        return None
    known = list(conjuncts(t.predicate))
    kept = [e for e in known if e != not_left]
    if len(kept) == len(known) or any(e not in known for e in others):
        return None
    if any(x.array == setter.array for e in kept for x in loads(e)):
        return None
    return with_bound(scop, t, i, ((), (end,)), kept)
