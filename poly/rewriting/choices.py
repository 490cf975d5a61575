"""Values that are replaced at once as one value: `t = a; if c: t = b` is `t = b if c else a`, `t = a; t = f(t)` is
`t = f(a)`.

Both spellings say the same, but only one of them is a value: a statement whose condition depends on data has a may
write (which value a read sees depends on data), a choice is an operand like others. (If-conversion: Allen, Kennedy,
Porterfield and Warren, "Conversion of control dependence to data dependence", POPL 1983.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.cache import per_scop
from polyc.poly.certificates import may_leave
from polyc.poly.expr import Binary, Expr, Load, Select, loads, rewrite, substitutable
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine import NotAffine, terms_of, to_pw_aff
from polyc.poly.forms.affine_expr import set_expr
from polyc.poly.reduction import with_reduction
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Node, loop_dim, loops_around, walk
from polyc.poly.tree import Sequence as InOrder

MOST_STATEMENTS = 64
"""Of a program that is looked through: of long ones most is a chain that no strategy would know."""
LARGEST = 64
"""Parts of a value that may be put into another one."""


def with_choices(scop: Scop) -> Scop:
    """The same program with one value for each such chain; the Scop itself where there is none."""
    if len(scop.statements) > MOST_STATEMENTS or not any(_replaces(scop, s) for s in scop.statements.values()):
        return scop
    while (found := _first(scop)) is not None:
        before, after = found
        a, b = scop.statements[before], scop.statements[after]
        statements = {n: s for n, s in scop.statements.items() if n != before}
        statements[after] = with_reduction(_chosen(a, b), scop.reassociate)
        scop = replace(scop, statements=statements, tree=without(_always(scop.tree, a, b), before))
    return scop


def _first(scop: Scop) -> tuple[str, str] | None:
    """A plain assignment and the conditional one that may follow it."""
    for node in walk(scop.tree):
        if isinstance(node, InOrder):
            for k, part in enumerate(node.filters):
                name = _alone(part)
                after = None if name is None else scop.statements[name]
                if after is not None and _replaces(scop, after):
                    before = _replaced(scop, node.filters[:k], after)
                    if before is not None:
                        return before, after.name
    return None


def is_copy(scop: Scop, array: str) -> bool:
    """Whether a local array is a scalar with a copy for each iteration of loops: its subscripts are the iterators of
    loops around all of its accesses, but for constants. (What the front end makes of a scalar; that it has made it is
    no part of a Scop's text, on which steps depend alone.)"""
    a = scop.arrays[array]
    return a.kind == "local" and bool(a.shape) and all(loop_of(scop, array, d) for d in range(len(a.shape)))


def loop_of(scop: Scop, array: str, d: int) -> str | None:
    """The loop around all accesses to an array whose iterator is, but for a constant, subscript `d` of each."""
    known = _known_loops(scop)
    if (array, d) not in known:
        known[array, d] = _loop_of(scop, array, d)
    return known[array, d]


@per_scop
def _known_loops(scop: Scop) -> dict[tuple[str, int], str | None]:
    """Answers of `loop_of`: each array is asked about for each of its accesses and each loop."""
    return {}


@per_scop
def _subscripts(scop: Scop) -> Mapping[str, Sequence[tuple[str, tuple[Expr, ...]]]]:
    """Statement and subscripts of each access to an array, without repetitions."""
    found: dict[str, dict[tuple[str, tuple[Expr, ...]], None]] = {}
    for a in accesses(scop):
        found.setdefault(a.array, {})[a.stmt, a.load.index] = None
    return {array: tuple(seen) for array, seen in found.items()}


def _loop_of(scop: Scop, array: str, d: int) -> str | None:
    found: set[str] = set()
    for stmt, index in _subscripts(scop).get(array, ()):
        terms = terms_of(index[d]) or {}
        names = [n for n in terms if n]
        s = scop.statements[stmt]
        if len(names) != 1 or terms[names[0]] != 1 or names[0] not in s.iters:
            return None
        own = loop_dim(s.domain, s.iters.index(names[0]))
        around = (m for m in loops_around(scop.tree, s.name) if m.schedule[s.name].plain_is_equal(own))
        found.add(next((m.name for m in around), ""))
        if len(found) > 1:
            return None
    return found.pop() if found else None


def _replaces(scop: Scop, s: Statement) -> bool:
    """Whether a statement may give an element another value than the one that it has just got: on a condition, or a
    scalar of the source one that is computed from it, or a whole number (which are subscripts, most often)."""
    if s.dynamic:
        return False
    if s.predicate is not None:
        return True
    own = sum(load.array == s.array and load.index == s.index for load in loads(s.value))
    number = own == 0 and scop.arrays[s.array].dtype.is_int
    return (own == 1 or number) and scop.arrays[s.array].kind == "local" and is_copy(scop, s.array)


def _alone(part: Filter) -> str | None:
    """The one statement of a part without loops."""
    return next(iter(part.domain)) if isinstance(part.child, Leaf) and len(part.domain) == 1 else None


def _replaced(scop: Scop, parts: Sequence[Filter], after: Statement) -> str | None:
    """The assignment before whose value a statement replaces on its condition, if it may happen just before that, or
    not at all."""
    touched: set[str] = set()  # arrays that statements in between write
    seen: set[str] = set()  # and that they read
    for part in reversed(parts):
        name = _alone(part)
        if name is not None and scop.statements[name].array == after.array:
            a = scop.statements[name]
            fits = _plain(a) and _same_element(a, after) and not _reads_others(scop, after)
            apart = after.array in seen or touched & {x.array for e in (a.value, *a.index) for x in loads(e)}
            return name if fits and not apart and not may_leave(scop, name) else None
        for access in accesses(scop):
            if access.stmt in part.domain:
                (touched if access.write else seen).add(access.array)
        if after.array in touched:
            return None
    return None


def _plain(a: Statement) -> bool:
    """Whether the statement just gives its element a value, and a small one."""
    small = sum(1 for _ in walk_expr(a.value)) <= LARGEST
    return small and a.predicate is None and a.reduction is None and not a.dynamic and substitutable(a.value)


def _same_element(a: Statement, b: Statement) -> bool:
    """Whether they write the same element at the same time, always, or numbers where a condition of the loops says
    so."""
    if a.iters != b.iters or a.index != b.index or not substitutable(b.value):
        return False
    later = b.domain.set_tuple_name(a.name)
    if a.domain.is_equal(later):
        return True
    whole = b.value.dtype.is_int and b.predicate is None and not any(True for e in (a.value, b.value) for _ in loads(e))
    return whole and bool(later.is_subset(a.domain))


def _reads_others(scop: Scop, b: Statement) -> bool:
    """Whether a statement may read the element that it writes under another name."""
    own = [a for a in accesses(scop) if a.stmt == b.name and a.array == b.array]
    written = next(a.map for a in own if a.write)
    others = (a.map for a in own if not a.write and a.load.index != b.index)
    return not all(m.intersect(written).is_empty() for m in others)


def _chosen(a: Statement, b: Statement) -> Statement:
    """The second statement with its value in place of that of the first, or with the choice between the two."""

    def new(e: Expr) -> Expr:
        return a.value if isinstance(e, Load) and e.array == a.array and e.index == a.index else e

    value = rewrite(b.value, new)
    if b.predicate is not None:
        value = Select(rewrite(b.predicate, new), value, a.value, b.value.dtype)
    here = b.domain.set_tuple_name(a.name)
    if not a.domain.is_equal(here):
        value = _where(here, value, a)
    return replace(b, value=value, predicate=None, reduction=None, domain=a.domain.set_tuple_name(b.name))


def _where(here: isl.Set, value: Expr, a: Statement) -> Expr:
    """A number where a condition of the loops holds, elsewhere that of a statement: the larger or the smaller one where
    it is that."""
    space = a.domain.get_space()
    try:
        new, old = (to_pw_aff(e, space) for e in (value, a.value))
    except NotAffine:
        return Select(set_expr(here, a.iters, a.domain), value, a.value, value.dtype)
    for op, wins, not_less in (("max", new.gt_set(old), new.ge_set(old)), ("min", new.lt_set(old), new.le_set(old))):
        if wins.intersect(a.domain).is_subset(here) and here.is_subset(not_less):
            return Binary(op, a.value, value, value.dtype)
    return Select(set_expr(here, a.iters, a.domain), value, a.value, value.dtype)


def _always(node: Node, a: Statement, b: Statement) -> Node:
    """The tree in which `b` happens whenever `a` does."""
    if isinstance(node, Filter):
        more = {b.name: node.domain[a.name].set_tuple_name(b.name)} if {a.name, b.name} <= node.domain.keys() else {}
        alone = {b.name: a.domain.set_tuple_name(b.name)} if _alone(node) == b.name else {}
        return Filter({**node.domain, **more, **alone}, _always(node.child, a, b))
    kids = tuple(_always(c, a, b) for c in node.children())
    return node.with_children(kids) if kids else node


def without(node: Node, name: str) -> Node:
    """The tree without a statement that is a part of its own."""
    kids = tuple(without(c, name) for c in node.children() if not (isinstance(c, Filter) and _alone(c) == name))
    if isinstance(node, Band):
        members = tuple(replace(m, schedule={n: v for n, v in m.schedule.items() if n != name}) for m in node.members)
        return Band(members, kids[0], node.permutable)
    if isinstance(node, Filter):
        return Filter({n: d for n, d in node.domain.items() if n != name}, kids[0])
    if isinstance(node, InOrder) and len(kids) == 1:
        return kids[0].children()[0]
    return InOrder(kids) if isinstance(node, InOrder) else node.with_children(kids)  # type: ignore[arg-type]
