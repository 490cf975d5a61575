"""What each statement reads and writes, as isl maps from instances to array elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import islpy as isl

from polyc.poly.cache import instances, per_scop
from polyc.poly.expr import Binary, Call, Expr, Load, Select, Unary, Var, compare, const_int
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff, to_set
from polyc.poly.records import dataclass
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import time_map


@dataclass(frozen=True, eq=False)
class Access:
    """One textual access.

    `map` is `{ stmt[iters] -> array[element] }` on the instances that can perform it: the
    domain, cut down by affine conditions of enclosing `Select`, `and`, `or` and predicate.
    `must` says that exactly the elements of `map` are touched whenever the statement runs;
    otherwise (predicate, data-dependent bound, guard or subscript) they are an upper bound.
    `accumulator` marks the read and the write of a reduction's own accumulator.
    """

    stmt: str
    array: str
    write: bool
    must: bool
    map: isl.Map
    load: Load
    accumulator: bool = False


@per_scop
def accesses(scop: Scop) -> tuple[Access, ...]:
    """All accesses, statement by statement: reads in evaluation order, then the write."""
    return tuple(a for s in scop.statements.values() for a in _statement_accesses(scop, s))


def accesses_by(scop: Scop, statements: Collection[str]) -> tuple[Access, ...]:
    """Those by some statements, in the same order; not remembered."""
    return tuple(a for n, s in scop.statements.items() if n in statements for a in _statement_accesses(scop, s))


@per_scop
def accesses_of(scop: Scop) -> Mapping[tuple[str, str], Sequence[Access]]:
    """The accesses of each statement to each array, by (statement, array), in the same order."""
    found: dict[tuple[str, str], list[Access]] = {}
    for a in accesses(scop):
        found.setdefault((a.stmt, a.array), []).append(a)
    return found


def accumulator_of(stmt: Statement) -> Load | None:
    """The load of a reduction's accumulator: first operand of the update (last one of fma)."""
    if stmt.reduction is None:
        return None
    value = stmt.value
    if isinstance(value, Binary):
        candidate: Expr = value.a
    elif isinstance(value, Call) and value.fn == "fma":
        candidate = value.args[2]
    else:
        return None
    return candidate if isinstance(candidate, Load) and candidate == stmt.target else None


def _statement_accesses(scop: Scop, s: Statement) -> Iterator[Access]:
    domain = instances(scop)[s.name]
    space = set_space(s.name, s.iters, scop.params)
    certain = not s.dynamic
    accumulator = accumulator_of(s)
    known: dict[Expr, isl.PwAff] = {}

    def access(load: Load, where: isl.Set, sure: bool, write: bool, own: bool) -> Access:
        relation, exact = element_map(load, scop.arrays[load.array], space, known)
        return Access(s.name, load.array, write, sure and exact, relation.intersect_domain(where), load, own)

    def reads(expr: Expr, where: isl.Set, sure: bool) -> Iterator[Access]:
        for load, at, exact in guarded_loads(expr, where, space):
            yield access(load, at, sure and exact, False, load is accumulator)

    for bound in s.dynamic:
        # The bounds of a loop are read when the loop is entered: on behalf of every instance.
        yield from reads(bound.lo, domain, certain)
        yield from reads(bound.hi, domain, certain)
    if s.predicate is not None:
        yield from reads(s.predicate, domain, certain)
        domain, exact = guard(s.predicate, True, domain, space)
        certain = certain and exact
    yield from reads(s.value, domain, certain)
    for index in s.index:
        yield from reads(index, domain, certain)
    yield access(s.target, domain, certain, True, accumulator is not None)


def guarded_loads(expr: Expr, where: isl.Set, space: isl.Space) -> Iterator[tuple[Load, isl.Set, bool]]:
    """Every load in `expr`, the instances that may perform it, and whether all of these do."""
    yield from _guarded(expr, where, True, space)


def _guarded(e: Expr, where: isl.Set, sure: bool, space: isl.Space) -> Iterator[tuple[Load, isl.Set, bool]]:
    if isinstance(e, Select):
        yield from _guarded(e.cond, where, sure, space)
        for arm, truth in ((e.a, True), (e.b, False)):
            inside, exact = guard(e.cond, truth, where, space)
            yield from _guarded(arm, inside, sure and exact, space)
        return
    if isinstance(e, Binary) and e.op in ("and", "or"):
        yield from _guarded(e.a, where, sure, space)
        inside, exact = guard(e.a, e.op == "and", where, space)
        yield from _guarded(e.b, inside, sure and exact, space)
        return
    for child in e.children():
        yield from _guarded(child, where, sure, space)
    if isinstance(e, Load):
        yield e, where, sure


def guard(cond: Expr, truth: bool, where: isl.Set, space: isl.Space) -> tuple[isl.Set, bool]:
    """The points of `where` at which `cond` may have the value `truth`, and whether it surely has.

    What is not affine in `cond` counts as unknown, so the set is an upper bound then.
    """
    if isinstance(cond, Unary) and cond.op == "not":
        return guard(cond.a, not truth, where, space)
    try:
        holds = to_set(cond, space)
    except NotAffine:
        pass
    else:
        return (where.intersect(holds) if truth else where.subtract(holds)), True
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        a, exact_a = guard(cond.a, truth, where, space)
        if (cond.op == "and") == truth:
            both, exact_b = guard(cond.b, truth, a, space)
            return both, exact_a and exact_b
        b, exact_b = guard(cond.b, truth, where, space)
        return a.union(b).coalesce(), exact_a and exact_b
    return where, False


def array_elements(array: Array, params: Sequence[str]) -> isl.Set:
    """`{ A[x] : 0 <= x < shape }`."""
    names = [f"e{d}" for d in range(len(array.shape))]
    space = set_space(array.name, names, params)
    out = isl.Set.universe(space)
    for name, size in zip(names, array.shape, strict=True):
        out = out.intersect(to_set(compare(">=", Var(name), const_int(0)), space))
        out = out.intersect(to_set(compare("<", Var(name), size), space))
    return out


def element_map(
    load: Load, array: Array, space: isl.Space, known: dict[Expr, isl.PwAff] | None = None
) -> tuple[isl.Map, bool]:
    """`{ stmt[iters] -> array[index] }` on the whole space, and whether it is exact.

    A subscript that is not affine stands for its whole dimension. `known`: affine subscripts of this space so far.
    """
    anywhere = isl.Set.universe(space)
    known = {} if known is None else known
    try:
        for subscript, _ in zip(load.index, array.shape, strict=True):
            if subscript not in known:
                known[subscript] = to_pw_aff(subscript, space)
        values = [known[subscript] for subscript in load.index]
        return time_map(anywhere, values).set_tuple_name(isl.dim_type.out, load.array), True
    except NotAffine:
        pass
    relation = isl.Map.from_domain(anywhere)
    exact = True
    for subscript, size in zip(load.index, array.shape, strict=True):
        try:
            dim = isl.Map.from_pw_aff(to_pw_aff(subscript, space))
        except NotAffine:
            dim, exact = _whole_dimension(size, space), False
        relation = relation.flat_range_product(dim)
    return relation.set_tuple_name(isl.dim_type.out, load.array), exact


def _whole_dimension(size: Expr, space: isl.Space) -> isl.Map:
    """`{ stmt[iters] -> [e] : 0 <= e < size }`."""
    element = isl.PwAff.from_aff(
        isl.Aff.var_on_domain(
            isl.LocalSpace.from_space(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=["e"])), isl.dim_type.set, 0
        )
    )
    zero = isl.PwAff.from_aff(isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space)))
    return zero.le_map(element).intersect(to_pw_aff(size, space).gt_map(element))
