"""Checks that can come before anything is computed.

Where subscripts, and the conditions and bounds under which they are read, depend on nothing that the program writes,
a program of the checks alone decides exactly whether an executed instance would leave its array. It runs first, over
only those loops that the subscript needs, and what follows runs without these checks or, after a violation, not at
all. For data-dependent loops even that is avoided where the largest elements of the index arrays show, at the speed of
memory, that nothing can be outside: unused elements may be, so this test alone never refuses anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.emit.loop_ir.linear import linear, rebuild
from polyc.emit.lowering.largest import Largest
from polyc.poly.certificates import Site, open_axes
from polyc.poly.dtypes import i64, u64
from polyc.poly.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Temp,
    Var,
    const_int,
    loads,
    rewrite,
    substitute,
    variables,
    walk,
)
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff
from polyc.poly.records import dataclass
from polyc.poly.scop import Array, DynamicBound, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim
from polyc.poly.tree import Sequence as SequenceNode

MASKED = -1  # the number of what is only masked


@dataclass(frozen=True)
class First:
    """Scops of checks, each with the quick test that makes it unnecessary, if there is one. `sites` by statement:
    what is checked (True), and what its subscript reads and must be masked; `numbers`: all that is decided here."""

    scops: tuple[tuple[Scop, Largest | None], ...]
    sites: Mapping[str, tuple[tuple[int, Site, bool], ...]]
    numbers: frozenset[int]


def checks_first(scop: Scop, sites: Sequence[Site], record: str) -> First | None:
    """The checks that need nothing the program writes, as a Scop; None where there are none."""
    known = _Known(scop)
    written = {s.array for s in scop.statements.values()}
    only_results = not any(scop.arrays[a].kind == "inout" for a in written)
    settled: dict[int, Site] = {}
    for number, site in enumerate(sites):
        found = known.site(site)
        if found is not None and not (only_results and _reads_in_loop(site, scop)):
            settled[number] = found
    if not settled:
        return None
    always: dict[str, Statement] = {}
    seldom: dict[str, Statement] = {}
    groups: dict[str, tuple[tuple[int, Site, bool], ...]] = {}
    quick = Largest(scop.arrays, record)
    looked_at: list[Site] = []
    for number, site in settled.items():
        if any(_implies(earlier, site) for earlier in looked_at):
            continue
        looked_at.append(site)
        name = f"check{number}"
        made = _statement(scop, name, number, site, record, known)
        if made is None:
            continue
        statement, groups[name] = made
        bounds = known.bounds(scop.statements[site.statement], site.depth)
        tells = bool(bounds) and quick.add(site, bounds, site.where)
        (seldom if tells else always)[name] = statement
    arrays = {**scop.arrays, record: Array(record, u64, (const_int(len(sites)),), "inout")}

    def program(statements: Mapping[str, Statement]) -> Scop:
        return replace(scop, arrays=arrays, statements=statements, tree=_tree(statements, groups), marks=(), notes=())

    parts = [(program(p), q) for p, q in ((seldom, quick), (always, None)) if p]
    return First(tuple(parts), groups, frozenset(settled))


def _implies(earlier: Site, site: Site) -> bool:
    """Whether an access before has asked for the same subscript, in all instances that come to this one."""
    same = (earlier.statement, earlier.depth, earlier.index, earlier.size)
    if same != (site.statement, site.depth, site.index, site.size):
        return False
    return earlier.when == site.when[: len(earlier.when)] and bool(site.where.is_subset(earlier.where))


class _Known:
    """Expressions in terms of arrays that the program does not write."""

    def __init__(self, scop: Scop) -> None:
        self.scop = scop
        self.writers: dict[str, list[Statement]] = {}
        for s in scop.statements.values():
            self.writers.setdefault(s.array, []).append(s)
        self.position = {name: k for k, name in enumerate(scop.statements)}

    def site(self, site: Site) -> Site | None:
        """The site in these terms."""
        s = self.scop.statements[site.statement]
        bounds = [e for b in s.dynamic[: site.depth] for e in (b.lo, b.hi)]
        parts = [self.expression(e, s) for e in (site.index, *site.when, *bounds)]
        if any(e is None for e in parts):
            return None
        index = list(site.load.index)
        for axis, e in enumerate(index):
            index[axis] = self.expression(e, s) or const_int(0)  # other axes have sites of their own
        when = tuple(e for e in parts[1 : 1 + len(site.when)] if e is not None)
        return replace(site, load=replace(site.load, index=tuple(index)), when=when)

    def bounds(self, s: Statement, depth: int) -> tuple[DynamicBound, ...]:
        """The bounds of data-dependent loops in these terms."""

        def known(e: Expr) -> Expr:
            found = self.expression(e, s)
            assert found is not None
            return found

        return tuple(DynamicBound(b.iter, known(b.lo), known(b.hi)) for b in s.dynamic[:depth])

    def expression(self, e: Expr, at: Statement) -> Expr | None:
        """`e` of statement `at`, None if it depends on what the program writes."""
        if any(isinstance(x, Temp) for x in walk(e)):
            return None  # computed on the way
        for _ in range(8):  # chains of local scalars
            unknown = [x for x in loads(e) if x.array in self.writers]
            if not unknown:
                return e
            values = {x: self.value(x, at) for x in unknown}
            if any(v is None for v in values.values()):
                return None
            e = _replaced(e, values)
        return None

    def value(self, load: Load, at: Statement) -> Expr | None:
        """What an element of a local array holds where `at` reads it, if one statement has set it for certain."""
        writers = self.writers[load.array]
        if len(writers) != 1 or self.scop.arrays[load.array].kind != "local":
            return None
        (w,) = writers
        if w.predicate is not None or w.reduction is not None or self.position[w.name] >= self.position[at.name]:
            return None
        if w.index != tuple(Var(i) for i in w.iters) or any(x.array == load.array for x in loads(w.value)):
            return None
        shared = set(w.iters) & set(at.iters)
        side_by_side = load.index == w.index and w.dynamic == at.dynamic[: len(w.dynamic)]
        if (not side_by_side if shared else w.dynamic) or not self.covered(load, w, at):
            return None
        return substitute(w.value, dict(zip(w.iters, load.index, strict=True)))

    def covered(self, load: Load, w: Statement, at: Statement) -> bool:
        """Whether `w` sets every element that `at` can read."""
        space = set_space(at.name, at.iters, self.scop.params)
        try:
            pieces = [isl.Map.from_pw_aff(to_pw_aff(e, space)) for e in load.index]
        except NotAffine:
            return False
        read = isl.Map.from_domain(isl.Set.universe(space))
        for piece in pieces:
            read = read.flat_range_product(piece)
        read = read.set_tuple_name(isl.dim_type.out, w.name)
        elements = at.domain.intersect_params(self.scop.context).apply(read)
        return bool(elements.is_subset(w.domain.intersect_params(self.scop.context)))


def _replaced(e: Expr, values: Mapping[Load, Expr | None]) -> Expr:
    return rewrite(e, lambda x: values.get(x) or x if isinstance(x, Load) else x)


def _statement(
    scop: Scop, name: str, number: int, site: Site, record: str, known: _Known
) -> tuple[Statement, tuple[tuple[int, Site, bool], ...]] | None:
    s = scop.statements[site.statement]
    dynamic = known.bounds(s, site.depth)
    used = [site.index, *site.when, *(e for b in dynamic for e in (b.lo, b.hi))]
    domain, shorter = site.where, dynamic
    try:  # what is affine is left to isl
        domain = domain.intersect(_inside(site, s, scop).complement())
        shorter = _ended(site, s, dynamic)
    except NotAffine:
        pass
    always = set(_always(site.index))
    masked = []
    for load in dict.fromkeys(x for e in used for x in loads(e)):
        for axis in open_axes(scop, s, load, domain):
            nested = replace(
                site, load=load, axis=axis, check=replace(site.check, size=scop.arrays[load.array].shape[axis])
            )
            try:
                if load not in always:
                    raise NotAffine("not read in every instance")
                domain = domain.intersect(_inside(nested, s, scop))
            except NotAffine:
                masked.append((MASKED, nested))
    if domain.is_empty():
        return None
    variables = {x.name for e in used for x in walk(e) if isinstance(x, Var)} | {b.iter for b in dynamic}
    for position in reversed(range(len(s.iters))):
        if s.iters[position] not in variables:
            domain = domain.project_out(isl.dim_type.set, position, 1)
    iters = tuple(i for i in s.iters if i in variables)
    domain = domain.set_tuple_name(name).coalesce()
    for position, i in enumerate(iters):
        domain = domain.set_dim_name(isl.dim_type.set, position, i)
    place = (const_int(number),)
    value = Binary("max", Load(record, place, u64), Const(0, u64), u64)
    made = Statement(name, iters, domain, record, place, value, None, "max", shorter, s.span)
    group = [(n, other, False) for n, other in masked] + [(number, site, True)]
    return made, tuple((n, replace(x, statement=name), main) for n, x, main in group)


def _always(e: Expr) -> Iterator[Load]:
    """The loads that evaluating `e` performs whatever the data."""
    if isinstance(e, Select) or (isinstance(e, Binary) and e.op in ("and", "or")):
        yield from _always(e.cond if isinstance(e, Select) else e.a)
        return
    if isinstance(e, Load):
        yield e
    for child in e.children():
        yield from _always(child)


def _ended(site: Site, s: Statement, dynamic: tuple[DynamicBound, ...]) -> tuple[DynamicBound, ...]:
    """The loops, the innermost one ended by its first subscript beyond the array: one violation is enough."""
    if not dynamic:
        return dynamic
    *outer, last = dynamic
    form, var = linear(site.index), Var(last.iter)
    rest = form - linear(var)
    inner = s.iters[s.iters.index(last.iter) + 1 :]
    used = {x for e in (*site.when, site.index) for x in walk(e) if isinstance(x, Var)}
    if form.coefficient(var) != 1 or any(Var(i) in used for i in inner) or any(var in walk(e) for e in site.when):
        return dynamic
    lo, hi = (e if e.dtype == i64 else Cast(e, i64) for e in (last.lo, last.hi))
    first = Binary("max", lo, rebuild(linear(site.size) - rest), i64)
    return (*outer, DynamicBound(last.iter, last.lo, Binary("min", hi, Binary("+", first, const_int(1), i64), i64)))


def _inside(site: Site, s: Statement, scop: Scop) -> isl.Set:
    space = set_space(s.name, s.iters, scop.params)
    at, size = to_pw_aff(site.index, space), to_pw_aff(site.size, space)
    return at.ge_set(size.sub(size)).intersect(at.lt_set(size))


def _reads_in_loop(site: Site, scop: Scop) -> bool:
    """Whether the subscript is read in the innermost data-dependent loop. To sweep over such arrays first takes the
    memory's time twice; where only results are written, and nobody sees them after an error, the loop checks."""
    s = scop.statements[site.statement]
    if not site.depth:
        return False
    inner = Var(s.dynamic[site.depth - 1].iter)
    return any(inner in walk(x) for x in loads(site.index))


def _along_memory(s: Statement, read: Sequence[Load]) -> int:
    """The loop of a check that is the last subscript, and no other one, of the most that it reads; the last loop where
    bounds depend on data, which go by the loops around them."""
    if s.dynamic:
        return len(s.iters) - 1

    def votes(k: int) -> tuple[int, int]:
        found = [[s.iters[k] in variables(e) for e in load.index] for load in read]
        return sum(own[-1] - any(own[:-1]) for own in found if own), k

    return max(range(len(s.iters)), key=votes)


def _tree(statements: Mapping[str, Statement], groups: Mapping[str, Sequence[tuple[int, Site, bool]]]) -> Node:
    """Each check in a nest of its own, the innermost loop a vector: the one that walks along memory."""

    def nest(s: Statement) -> Node:
        if not s.iters:
            return Leaf()
        sites = [site for _, site, _ in groups[s.name]]
        last = _along_memory(s, [x for q in sites for e in (*q.load.index, *q.when) for x in loads(e)])
        order = [*(k for k in range(len(s.iters)) if k != last), last]
        members = [
            Member(f"{s.name}_{s.iters[k]}", {s.name: loop_dim(s.domain, k)}, "vector" if k == last else "serial")
            for k in order
        ]
        return Band(tuple(members), Leaf())

    parts = [Filter({n: s.domain}, nest(s)) for n, s in statements.items()]
    return SequenceNode(tuple(parts)) if len(parts) > 1 else parts[0].child if parts else Leaf()
