"""Elements of local arrays that nobody reads are not written; a last copy of all others is not made.

    adj_P[h + k] += ...; grad_X[h] = adj_P[h + 1]   ->   grad_X[h + k - 1] += ...      (0 <= h + k - 1 < H)

What pads an image has no use for the adjoint of the padding: its instances go, and what is left is the gradient.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyc.poly.access import Access, accesses, accumulator_of
from polyc.poly.adjoint.algebra import less
from polyc.poly.adjoint.copies import changed_later, rewritten
from polyc.poly.adjoint.trees import in_place
from polyc.poly.expr import Binary, Const, Expr, Load, Var
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Leaf


def read_only(scop: Scop) -> Scop:
    """The Scop without writes of local elements that nobody reads, and without copies of whole local arrays."""
    for name, array in list(scop.arrays.items()):
        if array.kind == "local" and name in scop.arrays:
            scop = _array(scop, name)
    return scop


def _array(scop: Scop, array: str) -> Scop:
    own = [a for a in accesses(scop) if a.array == array]
    reads = [a for a in own if not a.write and not a.accumulator]
    writes = [a for a in own if a.write]
    if not reads or not writes or not all(a.must for a in own):
        return scop
    live = reads[0].map.range()
    for a in reads[1:]:
        live = live.union(a.map.range())
    live = live.coalesce()
    if all(a.map.range().is_subset(live) for a in writes):
        narrow = scop.statements
    else:
        narrow = {n: _within(s, writes, live) for n, s in scop.statements.items()}
        if any(s.domain.is_empty() for s in narrow.values()):
            return scop
        scop = _with(scop, narrow)
    last = scop.statements[reads[0].stmt] if len(reads) == 1 else None
    return scop if last is None else _shifted(scop, last, reads[0], live)


def _within(s: Statement, writes: list[Access], live: isl.Set) -> Statement:
    """A statement on the instances that write elements which are read."""
    for a in writes:
        if a.stmt == s.name and not a.map.range().is_subset(live):
            domain = a.map.intersect_range(live).domain().coalesce()
            for k, i in enumerate(s.iters):
                domain = domain.set_dim_name(isl.dim_type.set, k, i)
            return replace(s, domain=domain)
    return s


def _with(scop: Scop, statements: dict[str, Statement]) -> Scop:
    tree = in_place(scop.tree, {n: [s] for n, s in statements.items()}, str)
    used = {*scop.args, *scop.results, *(a.array for a in accesses(replace(scop, statements=statements)))}
    arrays = {n: a for n, a in scop.arrays.items() if n in used}
    return replace(scop, arrays=arrays, statements=statements, tree=Leaf() if tree is None else tree)


def _shifted(scop: Scop, s: Statement, read: Access, live: isl.Set) -> Scop:
    """The Scop whose statements write at once what `s` only copies, if that is all that is made of either array."""
    if s.value != read.load or s.predicate is not None or s.dynamic or s.array == read.array:
        return scop
    if s.index != tuple(map(Var, s.iters)) or any(t.array == s.array and t is not s for t in scop.statements.values()):
        return scop
    if any(a.array == s.array and not a.write for a in accesses(scop)):
        return scop
    source, target = scop.arrays[read.array], scop.arrays[s.array]
    shifts = [_shift(e, i) for e, i in zip(read.load.index, s.iters, strict=False)]
    known = [x for x in shifts if x is not None]
    if len(known) != len(source.shape) or len(s.iters) != len(known) or source.dtype != target.dtype or target.scalar:
        return scop
    written = isl.Set.empty(live.get_space())
    for a in accesses(scop):
        if a.array == read.array and a.write:
            written = written.union(a.map.range())
    if not written.is_equal(live) or changed_later(scop, s):
        return scop

    def moved(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.array != read.array:
            return e
        index = tuple(less(x, k) for x, k in zip(e.index, known, strict=True))
        return replace(e, array=s.array, index=index)

    statements = {}
    for n, t in scop.statements.items():
        if t is s:
            continue
        new = rewritten(t, moved)
        if t.array == read.array:
            at = moved(t.target)
            assert isinstance(at, Load)
            new = replace(new, array=s.array, index=at.index, reduction=t.reduction)
            assert t.reduction is None or accumulator_of(new) is not None
        statements[n] = new
    return _with(scop, statements)


def _shift(e: Expr, i: str) -> int | None:
    """The number that a subscript adds to an iterator; None where it is something else."""
    if e == Var(i):
        return 0
    if isinstance(e, Binary) and e.op in ("+", "-") and e.a == Var(i) and isinstance(e.b, Const):
        return int(e.b.value) if e.op == "+" else -int(e.b.value)
    return None
