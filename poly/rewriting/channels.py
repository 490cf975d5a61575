"""Arrays of images stored with their channels last or in blocks, and loops to match.

`relayout` composes subscripts with a layout and leaves the loops alone. Here the iterators that run over a blocked
dimension are cut in the same way (`c = block * c_o + c_i`, next to each other, so the order of execution stays), local
arrays with the same dimension follow, and subscripts are plain iterators again: what reads and schedules the Scop need
not know that a layout was changed.

A last block that is not full is computed whole: its further elements are padding, which nobody reads into an element
that counts. A reduction therefore never runs over padding; its iterator stays whole where blocks do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, loads, rewrite
from polyc.poly.forms.affine import set_space
from polyc.poly.forms.layout_maps import whole
from polyc.poly.records import dataclass
from polyc.poly.rewriting.stored import Layout, laid_out_shape
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Sequence, loop_dim

LAST = 0


@dataclass(frozen=True, slots=True)
class Channels:
    """The dimension `dim` of an array goes behind all others: whole (`block` is `LAST`), or `block` elements of it."""

    dim: int
    block: int

    def layout(self, rank: int) -> Layout:
        """The layout of an array of this rank."""
        others = [f"i{k}" for k in range(rank) if k != self.dim]
        if self.block == LAST:
            return whole(rank, *others, f"i{self.dim}")
        outer, inner = f"floor(i{self.dim}/{self.block})", f"i{self.dim} mod {self.block}"
        return whole(rank, *others[: self.dim], outer, *others[self.dim :], inner)


def store_channels(
    scop: Scop, wanted: Mapping[str, Channels], constants: frozenset[str]
) -> tuple[Scop, dict[str, Layout]]:
    """The same algorithm with the arguments `wanted` stored so; and the layouts of all arguments that changed.

    Args:
        constants: arguments whose layout may change, too, where loops are cut.

    Raises:
        ScopError: shapes are symbolic, or the loops are not of a kind that can be cut.
    """
    marks = _Marks(scop, wanted, constants)
    layouts = {n: layout for n, a in scop.arrays.items() if (layout := marks.layout(a))}
    taken = {*scop.arrays, *scop.statements, *scop.params, *(i for s in scop.statements.values() for i in s.iters)}
    cuts = {n: _cuts(scop, s, marks, taken) for n, s in scop.statements.items()}
    statements = {n: _restated(s, marks, cuts[n], layouts) for n, s in scop.statements.items()}
    arrays = {n: _stored(a, layouts[n]) if n in layouts else a for n, a in scop.arrays.items()}
    tree = _recut(scop, scop.tree, marks, cuts, statements)
    moved = {n: layout for n, layout in layouts.items() if scop.arrays[n].kind != "local"}
    return replace(scop, arrays=arrays, statements=statements, tree=tree), moved


class _Marks:
    """Which dimensions of arrays are stored otherwise, and which iterators are cut: both follow from each other."""

    def __init__(self, scop: Scop, wanted: Mapping[str, Channels], constants: frozenset[str]) -> None:
        self.scop = scop
        self.dims: dict[tuple[str, int], int] = {}
        self.constants = constants
        self.follow = constants | {n for n, a in scop.arrays.items() if a.kind == "local"}
        self.plain = [(s, _plain_subscripts(s)) for s in scop.statements.values()]
        self.cut: dict[tuple[str, str], tuple[int, bool]] = {}  # statement, iterator -> block, whether padding runs too
        for last in (False, True):  # what has blocks first: local arrays between both kinds get them
            self.dims |= {(n, c.dim): c.block for n, c in wanted.items() if (c.block == LAST) == last}
            while self._grow():
                pass

    def _grow(self) -> bool:
        """One round; whether anything was new."""
        before = len(self.dims), len(self.cut)
        for s, iterators in self.plain:
            for i, here in iterators.items():
                blocks = {self.dims[x] for x in here if x in self.dims}
                if not blocks:
                    continue
                block = max(blocks)
                if block != LAST and (s.name, i) not in self.cut and not self._cut(s, i, block):
                    continue
                for a, d in here:
                    if a in self.follow and (a, d) not in self.dims and (block != LAST or a not in self.constants):
                        self.dims[a, d] = block
        return (len(self.dims), len(self.cut)) != before

    def _cut(self, s: Statement, i: str, block: int) -> bool:
        """Cut an iterator if that is possible; whether it is."""
        if s.dynamic:
            return False
        found = list(_subscripts(s))
        size = max(_extent(self.scop.arrays[a], d) for a, d, e in found if e == Var(i))
        if size % block == 0:
            self.cut[s.name, i] = block, False
            return True
        # The last block runs whole: all that it touches must have room, and it may add up nothing.
        written = Var(i) in s.index
        roomy = all(
            e == Var(i)
            and (self.dims.get((a, d), block) == block if a in self.follow else self.dims.get((a, d)) == block)
            for a, d, e in found
            if i in _names(e)
        )
        plain = s.predicate is None and _padded(s, s.iters.index(i), size, block) is not None
        if written and roomy and plain:
            self.cut[s.name, i] = block, True
            return True
        return False

    def layout(self, array: Array) -> Layout | None:
        """How an array is stored, None when nothing changed. Of constants blocks lie where the dimension was."""
        own = {d: b for (a, d), b in self.dims.items() if a == array.name}
        if not own:
            return None
        rank = len(array.shape)
        if array.name in self.constants:
            parts = [(f"floor(i{d}/{own[d]})", f"i{d} mod {own[d]}") if d in own else (f"i{d}",) for d in range(rank)]
            return whole(rank, *(p for part in parts for p in part))
        if len(own) > 1:
            raise ScopError(f"'{array.name}' would have {len(own)} dimensions in blocks")
        ((dim, block),) = own.items()
        return Channels(dim, block).layout(rank)


def _subscripts(s: Statement) -> Iterator[tuple[str, int, Expr]]:
    """Array, dimension and subscript of every access."""
    for load in (s.target, *loads(s.value), *(x for e in s.index for x in loads(e)),
                 *(loads(s.predicate) if s.predicate is not None else ())):  # fmt: skip
        for d, e in enumerate(load.index):
            yield load.array, d, e


def _plain_subscripts(s: Statement) -> dict[str, list[tuple[str, int]]]:
    """By iterator: array and dimension of the accesses that it subscripts alone."""
    found: dict[str, list[tuple[str, int]]] = {i: [] for i in s.iters}
    for a, d, e in _subscripts(s):
        if isinstance(e, Var) and e.name in found:
            found[e.name].append((a, d))
    return found


def _names(e: Expr) -> set[str]:
    found = {e.name} if isinstance(e, Var) else set()
    return found.union(*(_names(c) for c in e.children()))


def _extent(array: Array, dim: int) -> int:
    size = array.shape[dim]
    if not isinstance(size, Const):
        raise ScopError(f"cannot change the layout of '{array.name}': its shape is symbolic")
    return int(size.value)


def _stored(array: Array, layout: Layout) -> Array:
    old = tuple(_extent(array, d) for d in range(len(array.shape)))
    return replace(array, shape=tuple(const_int(n) for n in laid_out_shape(old, layout)))


def _padded(s: Statement, position: int, size: int, block: int) -> isl.Set | None:
    """The domain with the iterator running to the end of the last block; None where its bounds are not 0 and `size`."""
    rest = s.domain.drop_constraints_involving_dims(isl.dim_type.set, position, 1)

    def upto(n: int) -> isl.Set:
        low = rest.lower_bound_val(isl.dim_type.set, position, isl.Val(0))
        return low.upper_bound_val(isl.dim_type.set, position, isl.Val(n - 1))

    return upto(-(-size // block) * block) if upto(size).is_equal(s.domain) else None


@dataclass(frozen=True)
class _Cuts:
    """The cut iterators of one statement: `pairs[i]` are the new names and the block; `names` all new iterators."""

    names: tuple[str, ...]
    pairs: Mapping[str, tuple[str, str, int]]
    back: isl.MultiAff | None  # new instances to old ones

    def whole(self, i: str) -> Expr:
        """The old iterator from the new ones."""
        outer, inner, block = self.pairs[i]
        return Binary("+", Binary("*", Var(outer), const_int(block), i64), Var(inner), i64)


def _cuts(scop: Scop, s: Statement, marks: _Marks, others: set[str]) -> _Cuts:
    """The cuts of a statement; new names are none of `others`."""
    taken = set(others)
    pairs: dict[str, tuple[str, str, int]] = {}
    names: list[str] = []
    for i in s.iters:
        known = marks.cut.get((s.name, i))
        if known is None:
            names.append(i)
            continue
        outer, inner = _fresh(f"{i}_o", taken), _fresh(f"{i}_i", taken)
        pairs[i] = outer, inner, known[0]
        names += [outer, inner]
    if not pairs:
        return _Cuts(tuple(names), pairs, None)
    space = set_space(s.name, names, scop.params)
    ls = isl.LocalSpace.from_space(space)

    def var(name: str) -> isl.Aff:
        return isl.Aff.var_on_domain(ls, isl.dim_type.set, names.index(name))

    affs = [
        var(i) if i not in pairs else var(pairs[i][0]).scale_val(isl.Val(pairs[i][2])).add(var(pairs[i][1]))
        for i in s.iters
    ]
    total = isl.AffList.alloc(isl.DEFAULT_CONTEXT, len(affs))
    for aff in affs:
        total = total.add(aff)
    back = isl.MultiAff.from_aff_list(space.map_from_domain_and_range(s.domain.get_space()), total)
    return _Cuts(tuple(names), pairs, back)


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _domain(s: Statement, cuts: _Cuts, old: isl.Set, marks: _Marks) -> isl.Set:
    """A set of old instances as new ones, with the padding where it is the whole domain."""
    for i in cuts.pairs:
        block, pads = marks.cut[s.name, i]
        if pads:
            size = max(_extent(marks.scop.arrays[a], d) for a, d, e in _subscripts(s) if e == Var(i))
            wide = _padded(replace(s, domain=old), s.iters.index(i), size, block)
            if wide is None:
                raise ScopError(f"the loops of {s.name} are no box")
            old = wide
    if cuts.back is None:
        return old
    new = old.preimage_multi_aff(cuts.back)
    for _, inner, block in cuts.pairs.values():
        at = cuts.names.index(inner)
        new = new.lower_bound_val(isl.dim_type.set, at, isl.Val(0)).upper_bound_val(
            isl.dim_type.set, at, isl.Val(block - 1)
        )
    return new


def _restated(s: Statement, marks: _Marks, cuts: _Cuts, layouts: Mapping[str, Layout]) -> Statement:
    whole = {cuts.whole(i): pair for i, pair in cuts.pairs.items()}

    def subscripts(array: str, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(_coordinate(index[d], div, mod, whole) for d, div, mod in layouts[array])

    def move(e: Expr) -> Expr:
        if isinstance(e, Var) and e.name in cuts.pairs:
            return cuts.whole(e.name)
        if isinstance(e, Load) and e.array in layouts:
            return Load(e.array, subscripts(e.array, e.index), e.dtype, e.span)
        return e

    index = tuple(rewrite(e, move) for e in s.index)
    return replace(
        s, iters=cuts.names, domain=_domain(s, cuts, s.domain, marks), value=rewrite(s.value, move),
        index=subscripts(s.array, index) if s.array in layouts else index,
        predicate=None if s.predicate is None else rewrite(s.predicate, move),
        dynamic=tuple(replace(d, lo=rewrite(d.lo, move), hi=rewrite(d.hi, move)) for d in s.dynamic),
    )  # fmt: skip


def _coordinate(e: Expr, div: int, mod: int, whole: Mapping[Expr, tuple[str, str, int]]) -> Expr:
    """`(e // div) % mod`, as plain iterators where `e` is one that was cut there."""
    pair = whole.get(e)
    if pair is not None and pair[2] == max(div, mod):
        return Var(pair[1]) if mod else Var(pair[0])
    if div != 1:
        e = Binary("//", e, const_int(div), i64)
    return Binary("%", e, const_int(mod), i64) if mod else e


def _recut(scop: Scop, node: Node, marks: _Marks, cuts: Mapping[str, _Cuts], new: Mapping[str, Statement]) -> Node:
    """The tree over the new instances, in the same order; a loop over a cut iterator becomes two."""
    if isinstance(node, Leaf):
        return Leaf()
    if isinstance(node, Sequence):
        parts = (_recut(scop, c, marks, cuts, new) for c in node.filters)
        return Sequence(tuple(f for f in parts if isinstance(f, Filter)))
    if isinstance(node, Filter):
        domain = {}
        for n, where in node.domain.items():
            s = scop.statements[n]
            domain[n] = new[n].domain if where.is_equal(s.domain) else _domain(s, cuts[n], where, marks)
        return Filter(domain, _recut(scop, node.child, marks, cuts, new))
    if not isinstance(node, Band):
        raise ScopError("the Scop has a schedule already")
    members = [part for m in node.members for part in _loops(scop, m, cuts)]
    return Band(tuple(members), _recut(scop, node.child, marks, cuts, new), node.permutable)


def _loops(scop: Scop, m: Member, cuts: Mapping[str, _Cuts]) -> list[Member]:
    over = {n: _cut_by(scop.statements[n], pa, cuts[n]) for n, pa in m.schedule.items()}
    blocks = {pair[2] for pair in over.values() if pair is not None}
    if len(blocks) > 1:
        raise ScopError(f"loop {m.name} would be cut into blocks of {sorted(blocks)}")
    outer: dict[str, isl.PwAff] = {}
    inner: dict[str, isl.PwAff] = {}
    for n, pa in m.schedule.items():
        back, pair = cuts[n].back, over[n]
        if pair is not None:
            space = isl.Set.universe(set_space(n, cuts[n].names, scop.params))
            outer[n], inner[n] = (loop_dim(space, cuts[n].names.index(name)) for name in pair[:2])
            continue
        outer[n] = pa if back is None else pa.pullback_multi_aff(back)
        for block in blocks:
            outer[n], inner[n] = outer[n].scale_down_val(isl.Val(block)).floor(), outer[n].mod_val(isl.Val(block))
    if not blocks:
        return [replace(m, schedule=outer)]
    return [replace(m, name=f"{m.name}_o", schedule=outer), replace(m, name=f"{m.name}_i", schedule=inner)]


def _cut_by(s: Statement, time: isl.PwAff, cuts: _Cuts) -> tuple[str, str, int] | None:
    """The pair of new iterators of the cut one that a loop runs over; None where it runs over another."""
    found = (pair for i, pair in cuts.pairs.items() if time.plain_is_equal(loop_dim(s.domain, s.iters.index(i))))
    return next(found, None)
