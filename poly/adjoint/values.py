"""Where a reversed program finds the values that the forward one read.

The forward part of the joint program runs first and leaves its arrays as they are at its end. A value that a statement
read may then be found in one of three places, decided exactly and for each instance:

* in an **argument**: the element had not been written before the read;
* in the **final array**: nothing writes the element after the read (nor does the reading instance itself);
* on a **tape**, a local array that the forward part writes just before the statement runs.

Writes that may or may not happen (predicates, indirection) count as happening.
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.access import Access, accesses, element_map, guard
from polyc.poly.adjoint.algebra import both, negated
from polyc.poly.dtypes import bool_
from polyc.poly.expr import Binary, Expr, Load, Select, loads
from polyc.poly.forms.affine import NotAffine, set_space, to_set
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement


@dataclass(slots=True)
class Read:
    """An element that a statement reads: `where` are the instances that may, `cond` when they do (None: always)."""

    load: Load
    where: isl.Set
    cond: Expr | None


@dataclass(frozen=True, slots=True)
class Places:
    """The instances of a read by the place of its value; they are disjoint and cover `where`."""

    where: isl.Set
    argument: isl.Set
    final: isl.Set
    tape: isl.Set


def reads_of(scop: Scop, s: Statement) -> dict[Load, Read]:
    """All elements that a statement reads, in subscripts, bounds and conditions, too."""
    found: dict[Load, Read] = {}
    space = set_space(s.name, s.iters, scop.params)
    domain = s.domain.intersect_params(scop.context)

    def note(e: Expr, where: isl.Set, cond: Expr | None) -> None:
        if next(loads(e), None) is None:
            return
        if isinstance(e, Select):
            note(e.cond, where, cond)
            for arm, truth in ((e.a, True), (e.b, False)):
                note(arm, guard(e.cond, truth, where, space)[0], both(cond, _by_data(e.cond, truth, space)))
            return
        if isinstance(e, Binary) and e.op in ("and", "or"):
            note(e.a, where, cond)
            truth = e.op == "and"
            note(e.b, guard(e.a, truth, where, space)[0], both(cond, _by_data(e.a, truth, space)))
            return
        for child in e.children():
            note(child, where, cond)
        if isinstance(e, Load):
            if e not in found:
                found[e] = Read(e, where, cond)
                return
            known = found[e]
            known.where = known.where.union(where).coalesce()
            known.cond = None if known.cond is None or cond is None else _either(known.cond, cond)

    for bound in s.dynamic:
        note(bound.lo, domain, None)
        note(bound.hi, domain, None)
    if s.predicate is not None:
        note(s.predicate, domain, None)
        domain = guard(s.predicate, True, domain, space)[0]
    for e in (s.value, *s.index):
        note(e, domain, s.predicate)
    return found


def _either(a: Expr, b: Expr) -> Expr:
    return a if a == b else Binary("or", a, b, bool_)


def _by_data(cond: Expr, truth: bool, space: isl.Space) -> Expr | None:
    """The condition where data decide about it; None where the instances do."""
    try:
        to_set(cond, space)
    except NotAffine:
        return cond if truth else negated(cond)
    return None


class Order:
    """Questions about a Scop's own order of one read and the writes of its array."""

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self._writes: dict[str, list[Access]] = {}
        for a in accesses(scop):
            if a.write:
                self._writes.setdefault(a.array, []).append(a)

    def touched(self, s: Statement, load: Load, where: isl.Set) -> isl.Map:
        """`{ s[iters] -> array[element] }` of a load, perhaps more than the elements that it touches."""
        space = set_space(s.name, s.iters, self.scop.params)
        return element_map(load, self.scop.arrays[load.array], space)[0].intersect_domain(where)

    def after_writes(self, s: Statement, relation: isl.Map, array: str) -> isl.Set:
        """The instances before which something may have written their element."""
        pairs = {(w.stmt, s.name): w.map.apply_range(relation.reverse()) for w in self._writes.get(array, ())}
        found = isl.Set.empty(relation.domain().get_space())
        for m in in_order(self.scop, pairs).values():
            found = found.union(m.range())
        return found.coalesce()

    def overwritten(self, s: Statement, relation: isl.Map, array: str) -> isl.Set:
        """The instances whose element they or something after them may write."""
        pairs = {(s.name, w.stmt): relation.apply_range(w.map.reverse()) for w in self._writes.get(array, ())}
        found = isl.Set.empty(relation.domain().get_space())
        for m in in_order(self.scop, pairs).values():
            found = found.union(m.domain())
        for w in self._writes.get(array, ()):
            if w.stmt == s.name:
                found = found.union(relation.intersect(w.map).domain())
        return found.coalesce()

    def places(self, s: Statement, read: Read) -> Places:
        """Where the values of a read are found after the program has run."""
        array, where = read.load.array, read.where.intersect_params(self.scop.context)
        nowhere = isl.Set.empty(where.get_space())
        kind = self.scop.arrays[array].kind
        if kind == "in" or array not in self._writes:
            return Places(where, where, nowhere, nowhere)
        relation = self.touched(s, read.load, where)
        overwritten = self.overwritten(s, relation, array).intersect(where)
        final = where.subtract(overwritten).coalesce()
        argument = nowhere
        if kind == "inout" and not overwritten.is_empty():
            argument = overwritten.subtract(self.after_writes(s, relation, array)).coalesce()
        tape = overwritten.subtract(argument).coalesce()
        return Places(where, argument, final, tape)
