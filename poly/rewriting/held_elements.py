"""Elements of arrays that a loop with an early end updates, as scalars: read before the loop, stored after it.

    i: R[i] = 0; while R[i] < 100 and ...: R[i] += 1     ->     i: R[i] = 0; r = R[i]; while r < 100 and ...: r += 1
                                                                   R[i] = r

A scalar stays in a register, in each lane of a vector, too; an element that is stored on a condition goes through
memory in each iteration. (Scalar replacement: Callahan, Carr and Kennedy, "Improving register allocation for
subscripted variables", PLDI 1990.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.certificates import open_axes
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Expr, Load, Var, loads, rewrite, substitute, variables
from polyc.poly.records import dataclass
from polyc.poly.reduction import updates_once
from polyc.poly.rewriting.choices import is_copy
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Node, Sequence, loop_dim, loops_around, walk


@dataclass(frozen=True)
class _Loop:
    """A loop with an early end: its sequence and place there; the statement before it that gives its flag a value, once
    in each iteration of the loops around; for each of its own statements the iterators of those loops, by that
    statement's."""

    sequence: Sequence
    place: int
    flag: Statement
    iterators: Mapping[str, Mapping[str, str]]


def with_held_elements(scop: Scop) -> Scop:
    """The program with scalars for such elements; the Scop itself where there are none."""
    if not any(a.kind == "local" and a.dtype == bool_ for a in scop.arrays.values()):
        return scop
    while (found := next(_elements(scop), None)) is not None:
        scop = _held(scop, *found)
    return scop


def _elements(scop: Scop) -> Iterator[tuple[_Loop, Load]]:
    """Loops and elements that they update, with the subscripts that the flag's statement would have."""
    for node in walk(scop.tree):
        if isinstance(node, Sequence):
            for k, part in enumerate(node.filters):
                loop = _early_end(scop, node, k) if isinstance(part.child, Band) else None
                if loop is not None:
                    yield from ((loop, e) for e in _updated(scop, loop))


def _early_end(scop: Scop, node: Sequence, k: int) -> _Loop | None:
    """The loop that a part begins with, if all in it depends on a flag that is there before it."""
    inside = [scop.statements[n] for n in node.filters[k].domain]
    if any(s.predicate is None for s in inside):
        return None
    read = {x.array for s in inside if s.predicate is not None for x in loads(s.predicate)}
    for part in node.filters[:k]:
        s = scop.statements[next(iter(part.domain))]
        plain = isinstance(part.child, Leaf) and len(part.domain) == 1 and s.predicate is None and not s.dynamic
        array = scop.arrays[s.array]
        if not plain or s.array not in read or array.dtype != bool_ or s.index != tuple(map(Var, s.iters)):
            continue
        if any(x.array == s.array and x.write for t in inside for x in accesses(scop) if x.stmt == t.name):
            iterators = {t.name: _iterators(scop, s, t) for t in inside}
            if is_copy(scop, s.array) and all(set(i) == set(s.iters) for i in iterators.values()):
                return _Loop(node, k, s, iterators)
    return None


def _iterators(scop: Scop, flag: Statement, s: Statement) -> dict[str, str]:
    """The iterators of a statement by those that the flag's has for the same loops."""
    found = {}
    for m in loops_around(scop.tree, flag.name):
        own, other = (_iterator(scop.statements[n], m.schedule.get(n)) for n in (flag.name, s.name))
        if own is not None and other is not None:
            found[own] = other
    return found


def _iterator(s: Statement, time: isl.PwAff | None) -> str | None:
    """The iterator that a loop follows."""
    return next(
        (i for k, i in enumerate(s.iters) if time is not None and time.plain_is_equal(loop_dim(s.domain, k))), None
    )


def _updated(scop: Scop, loop: _Loop) -> Iterator[Load]:
    """Elements that the loop updates, each the only one of its array that the loop touches."""
    inside = [scop.statements[n] for n in loop.iterators]
    for name in dict.fromkeys(s.array for s in inside):
        if is_copy(scop, name):
            continue
        touched = set()
        for a in accesses(scop):
            if a.array == name and a.stmt in loop.iterators:
                back = {new: Var(old) for old, new in loop.iterators[a.stmt].items()}
                known = set().union(*map(variables, a.load.index)) <= back.keys() | set(scop.params)
                touched.add(tuple(substitute(e, back) for e in a.load.index) if known else None)
        (index, *others) = touched
        if index is None or others or any(True for e in index for _ in loads(e)):
            continue
        element = Load(name, index, scop.arrays[name].dtype)
        adds = any(s.array == name and s.reduction is not None for s in inside)
        if adds and not updates_once(element, loop.flag.domain):
            continue  # updates of one element by several such loops may change places as they are
        if not open_axes(scop, loop.flag, element, loop.flag.domain):
            yield element


def _held(scop: Scop, loop: _Loop, element: Load) -> Scop:
    """The program with a scalar for the element."""
    flag, shape = loop.flag, scop.arrays[loop.flag.array]
    array = Array(_new(scop, f"{element.array}_held"), element.dtype, shape.shape, "local", expanded=shape.expanded)
    scalar = Load(array.name, flag.index, element.dtype)
    read = like(scop, flag, f"{flag.name}_read", scalar, element)
    stored = like(scop, flag, f"{flag.name}_stored", element, scalar)
    statements: dict[str, Statement] = {}
    for name, s in scop.statements.items():
        if name in loop.iterators:
            here = tuple(Var(loop.iterators[name][i]) for i in flag.iters)
            statements[name] = _with_scalar(s, element.array, replace(scalar, index=here))
        else:
            statements[name] = s
    statements |= {read.name: read, stored.name: stored}
    tree = with_parts(scop.tree, loop.sequence, loop.place, flag.name, (read.name,), (stored.name,))
    return replace(scop, arrays={**scop.arrays, array.name: array}, statements=statements, tree=tree)


def like(scop: Scop, flag: Statement, name: str, target: Load, value: Expr) -> Statement:
    """A statement that runs when that of the flag does."""
    name = _new(scop, name)
    domain = flag.domain.set_tuple_name(name)
    return Statement(name, flag.iters, domain, target.array, target.index, value, span=flag.span)


def _with_scalar(s: Statement, array: str, scalar: Load) -> Statement:
    """The statement with a scalar for the element of an array."""

    def new(e: Expr) -> Expr:
        return replace(scalar, span=e.span) if isinstance(e, Load) and e.array == array else e

    return replace(
        s,
        array=scalar.array if s.array == array else s.array,
        index=scalar.index if s.array == array else s.index,
        value=rewrite(s.value, new),
        predicate=None if s.predicate is None else rewrite(s.predicate, new),
        dynamic=tuple(replace(d, lo=rewrite(d.lo, new), hi=rewrite(d.hi, new)) for d in s.dynamic),
    )


def with_parts(
    node: Node, sequence: Sequence, k: int, model: str, before: tuple[str, ...], after: tuple[str, ...]
) -> Node:
    """The tree with statements before and after a part of a sequence, for the iterations of another one there."""
    if node is sequence:
        where = next(part.domain[model] for part in sequence.filters if model in part.domain)
        first, then = ([Filter({n: where.set_tuple_name(n)}, Leaf()) for n in names] for names in (before, after))
        parts = sequence.filters
        return Sequence((*parts[:k], *first, parts[k], *then, *parts[k + 1 :]))
    kids = tuple(with_parts(c, sequence, k, model, before, after) for c in node.children())
    if all(a is b for a, b in zip(kids, node.children(), strict=True)):
        return node
    new = (*before, *after)
    if isinstance(node, Filter):
        return Filter({**node.domain, **{n: node.domain[model].set_tuple_name(n) for n in new}}, kids[0])
    if isinstance(node, Band):
        members = []
        for m in node.members:
            own = {n: m.schedule[model].set_tuple_id(isl.dim_type.in_, _id(n)) for n in new}
            members.append(replace(m, schedule={**m.schedule, **own}))
        return Band(tuple(members), kids[0], node.permutable)
    return node.with_children(kids)


def _id(name: str) -> isl.Id:
    return isl.Id.read_from_str(isl.DEFAULT_CONTEXT, name)


def _new(scop: Scop, name: str) -> str:
    """A name that nothing has."""
    used = {*scop.arrays, *scop.statements, *scop.params, *(i for s in scop.statements.values() for i in s.iters)}
    number, found = 0, name
    while found in used:
        number, found = number + 1, f"{name}_{number + 1}"
    return found
