"""Inlining a producer: reads of an array become the expressions whose values they see.

Which instance wrote a value is decided by value-based flow, exactly. The expression is the same
at its new time as long as nothing it reads has been overwritten in between; where something has,
the refusal names the instance that did it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import islpy as isl

from polyc.poly.access import Access, accesses
from polyc.poly.certificates import errs_alike
from polyc.poly.dependences import value_flow_among
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr, Load, loads, substitutable, substitute
from polyc.poly.forms.affine_expr import choose, function_expr
from polyc.poly.ordering.order import in_order
from polyc.poly.records import dataclass, replace
from polyc.poly.reduction import identity, rounds_alike, updates_once, with_reduction
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Node, Promote
from polyc.poly.tree import Sequence as SequenceNode
from polyc.poly.witnesses.violation import Violation
from polyc.scheduler.transformations.tree_edit import restrict


@dataclass(frozen=True)
class Inlined:
    """The new Scop and the statements that are gone; with a `violation` its values differ."""

    scop: Scop
    removed: frozenset[str]
    violation: Violation | None = None


@dataclass(frozen=True)
class Source:
    """`{ P[p] -> R[r] }`: the read at r sees what p wrote."""

    producer: Statement
    flow: isl.Map


def inline(scop: Scop, array: str) -> Inlined:
    """`scop` with every read of `array` replaced by the value written there; a local array and
    its writers are removed.

    Raises:
        ScheduleError: no read, or one whose writer is not known from the loops alone.
    """
    if array not in scop.arrays:
        raise ScheduleError(f"no array '{array}': the arrays are {', '.join(scop.arrays)}")
    writes = [a for a in accesses(scop) if a.array == array and a.write]
    reads: dict[str, dict[Load, list[Access]]] = {}
    for a in accesses(scop):
        if a.array == array and not a.write:
            reads.setdefault(a.stmt, {}).setdefault(a.load, []).append(a)
    if not reads or not writes:
        raise ScheduleError(f"array '{array}' is not {'written' if reads else 'read'}: nothing to inline")
    statements = dict(scop.statements)
    changed: list[tuple[str, str, isl.Map]] = []
    seen: dict[str, list[isl.Set]] = {}
    for name, by_load in reads.items():
        reader = scop.statements[name]
        _check_reader(reader, array)
        always = {load: all(a.must for a in group) for load, group in by_load.items()}
        values: dict[Load, Expr] = {}
        for load, group in by_load.items():
            sources = _sources(scop, array, writes, group)
            for source in sources:
                whom = seen.setdefault(source.producer.name, [])
                whom += [source.flow.domain()] if always[load] else []
            changed += [(name, a, m) for source in sources for a, m in _changed(scop, source, name)]
            values[load] = _value(reader, sources) if sources else identity("+", load.dtype)  # it never happens
        statements[name] = _rewritten(scop, reader, values)
        if not rounds_alike(scop, reader, statements[name]):
            raise ScheduleError(f"cannot inline '{array}': {name} adds it up rounded, and the order of sums is fixed")
    violation = _violation(scop, changed) if changed else None
    if scop.arrays[array].kind != "local":
        return Inlined(replace(scop, statements=statements), frozenset(), violation)
    _check_errors(scop, array, seen)
    gone = frozenset(w.stmt for w in writes)
    kept = {n: s for n, s in statements.items() if n not in gone}
    arrays = {n: a for n, a in scop.arrays.items() if n != array}
    tree = without(scop.tree, frozenset(kept), array)
    return Inlined(replace(scop, statements=kept, arrays=arrays, tree=tree), gone, violation)


def _violation(scop: Scop, changed: Sequence[tuple[str, str, isl.Map]]) -> Violation:
    """`changed`: reader, operand, and pairs of a producer and what overwrites the operand too early."""
    reader, operand, pairs = changed[0]
    detail = f"inlined into {reader}, the value would be computed after that"
    sizes = _union([m.params() for *_, m in changed])
    return Violation(scop, scop.tree, "delayed", pairs, sizes, None, detail, array=operand)


def _check_reader(reader: Statement, array: str) -> None:
    if reader.array == array:
        raise ScheduleError(f"cannot inline '{array}': {reader.name} computes it from its own values")
    if any(load.array == array for d in reader.dynamic for e in (d.lo, d.hi) for load in loads(e)):
        raise ScheduleError(f"cannot inline '{array}': a loop bound of {reader.name} reads it")


def _check_errors(scop: Scop, array: str, seen: Mapping[str, Sequence[isl.Set]]) -> None:
    """An access that leaves its array is an error, also where nobody uses the value. `seen`: by writer the instances
    whose value is read whatever the data."""
    for name in {a.stmt for a in accesses(scop) if a.array == array and a.write}:
        read = seen.get(name)
        if not errs_alike(scop, name, _union(read) if read else None):
            raise ScheduleError(
                f"cannot inline '{array}': {name} may leave an array, and not all that it writes is read in any case"
            )


def _sources(scop: Scop, array: str, writes: Sequence[Access], reads: Sequence[Access]) -> list[Source]:
    """Which instances write what these reads (of one element each) see."""
    name = reads[0].stmt
    if any(not a.map.is_single_valued() for a in reads):
        raise ScheduleError(f"cannot inline '{array}': a subscript in {name} depends on data")
    maps: list[isl.Map] = []
    value_flow_among(scop, [*writes, *reads], "RAW").foreach_map(maps.append)
    maps.sort(key=lambda m: m.get_tuple_name(isl.dim_type.in_))
    sources = []
    unseen = _union([a.map.domain() for a in reads])
    for m in maps:
        producer = scop.statements[m.get_tuple_name(isl.dim_type.in_)]
        if producer.predicate is not None or producer.dynamic:
            raise ScheduleError(f"cannot inline '{array}': whether {producer.name} writes it depends on data")
        if not substitutable(producer.value):
            raise ScheduleError(f"cannot inline '{array}': {producer.name} writes it by a long run of assignments")
        sources.append(Source(producer, m))
        unseen = unseen.subtract(m.range())
    if not unseen.is_empty():
        whose = "the caller" if scop.arrays[array].kind == "inout" else "nobody"
        raise ScheduleError(f"cannot inline '{array}': {name} reads elements of it that {whose} has written")
    return sources


def _changed(scop: Scop, source: Source, reader: str) -> Iterator[tuple[str, isl.Map]]:
    """Operand and `{ P[p] -> W[w] }`: w overwrites what p reads, after p and before an instance of
    the reader that sees p's value."""
    for read in (a for a in accesses(scop) if a.stmt == source.producer.name and not a.write):
        for write in (a for a in accesses(scop) if a.array == read.array and a.write):
            here, there = (read.stmt, write.stmt), (write.stmt, reader)
            later = in_order(scop, {here: read.map.apply_range(write.map.reverse())}).get(here)
            if later is not None:
                before = in_order(scop, {there: later.reverse().apply_range(source.flow)}).get(there)
                if before is not None:
                    yield read.array, later.intersect(source.flow.apply_range(before.reverse()))


def _value(reader: Statement, sources: Sequence[Source]) -> Expr:
    """What the read sees, in terms of the reader's iterators."""
    cases = []
    for source in sources:
        where = source.flow.range()
        of = isl.PwMultiAff.from_map(source.flow.reverse())
        point = {name: function_expr(of.get_at(k), reader.iters, where) for k, name in enumerate(source.producer.iters)}
        cases.append((where, substitute(source.producer.value, point)))
    cases.sort(key=lambda case: case[0].n_basic_set())  # the last one needs no condition
    return fold(choose(cases, reader.iters, reader.domain))


def _rewritten(scop: Scop, reader: Statement, values: Mapping[Load, Expr]) -> Statement:
    """The reader with loads replaced; a reduction that now reads its own array elsewhere is none any more, and what
    adds to its own element now is one."""

    def new(e: Expr) -> Expr:
        if isinstance(e, Load) and e in values:
            return values[e]
        kids = e.children()
        return e.with_children(tuple(new(k) for k in kids)) if kids else e

    changed = replace(
        reader,
        index=tuple(new(e) for e in reader.index),
        value=new(reader.value),
        predicate=None if reader.predicate is None else new(reader.predicate),
    )
    if reader.reduction is not None:
        own = sum(load.array == reader.array for load in loads(changed.value))
        if own > sum(load.array == reader.array for load in loads(reader.value)):
            return replace(changed, reduction=None)
        return changed
    once = all(load.array != reader.array for load in loads(changed.value)) or updates_once(
        reader.target, reader.domain
    )
    return changed if once else with_reduction(changed, scop.reassociate)


def without(node: Node, keep: frozenset[str], array: str) -> Node:
    """The tree of the remaining statements, without promotions of the removed array."""
    return _tidy(restrict(node, keep), array)


def _tidy(node: Node, array: str) -> Node:
    kids = node.children()
    node = node.with_children(tuple(_tidy(c, array) for c in kids)) if kids else node
    if isinstance(node, SequenceNode) and len(node.filters) == 1:
        return node.filters[0].child
    return node.child if isinstance(node, Promote) and node.array == array else node


def _union(sets: Sequence[isl.Set]) -> isl.Set:
    return reduce(lambda a, b: a.union(b), sets)
