"""Promotion: the box of an array that a subtree touches, its buffer, and the copies.

For the values `t` of the loops above a `Promote` node, `touched = { [t] -> A[x] }` gives the
elements used below. The buffer holds the box from the per-dimension minimum (a function of
`t`) with a constant or parametric extent, laid out as the node's `layout` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from math import prod

import islpy as isl

from polyc.emit.loop_ir.loops import Buffer
from polyc.emit.lowering.isl_expr import to_expr
from polyc.poly.access import accesses_of
from polyc.poly.dtypes import DType
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int, walk
from polyc.poly.forms.affine import NotAffine, to_pw_aff
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import LoopKind, Member, Promote, loops_below, time_maps

FIRST_ACCESS_QUOTA = 200_000  # isl operations to find out which elements need no copy in
UNROLL_LIMIT = 32  # copies of a short innermost loop that are written out
SHARED_COPY = 1 << 14  # elements of a buffer from which threads share its copy: some microseconds of one

Layout = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Copy:
    """A copy statement `name[t, x]`: element x of the array from or to the buffer (`fill`)."""

    name: str
    promotion: int
    fill: bool
    dtype: DType
    extension: isl.Map
    depth: int  # loops around it: the first dimensions of an instance
    loops: tuple[tuple[Member, isl.PwAff], ...]


@dataclass
class Promotion:
    """One Promote node in its place. `prefix`: instances -> t; `offset`: t -> box minimum."""

    number: int
    array: str
    buffer: Buffer
    layout: Layout
    offset: tuple[isl.PwAff, ...]
    prefix: isl.UnionMap
    depth: int
    copy_in: Copy | None = None
    copy_out: Copy | None = None
    outer: list[Promotion] = field(default_factory=list)

    def buffer_index(self, element: isl.MultiPwAff, to_prefix: isl.PwMultiAff) -> list[isl.PwAff]:
        """Buffer subscripts of an array element, both as functions of one instance space."""
        box = [
            element.get_pw_aff(d).sub(self.offset[d].pullback_pw_multi_aff(to_prefix))
            for d in range(element.dim(isl.dim_type.out))
        ]
        return [laid_out(box[dim], div, mod) for dim, div, mod in self.layout]


def laid_out(coordinate: isl.PwAff, div: int, mod: int) -> isl.PwAff:
    """`(coordinate // div) % mod` (no modulo for 0)."""
    if div > 1:
        coordinate = coordinate.scale_down_val(isl.Val(div)).floor()
    return coordinate.mod_val(isl.Val(mod)) if mod else coordinate


def accesses(scop: Scop, stmt: Statement, array: str) -> Iterator[tuple[Load, isl.Map, bool]]:
    """The loads of `array` and the store to it: `(access, { S[i] -> A[x] }, is write)`.

    Raises:
        BuildError: a subscript is not affine, or a loop bound reads the array.
    """
    for bound in stmt.dynamic:
        for e in (*walk(bound.lo), *walk(bound.hi)):
            if isinstance(e, Load) and e.array == array:
                raise BuildError(f"'{array}' cannot be promoted: a loop bound of {stmt.name} reads it")
    for access in accesses_of(scop).get((stmt.name, array), ()):
        element_of(stmt, access.load)
        yield access.load, access.map, access.write


def element_of(stmt: Statement, load: Load) -> isl.MultiPwAff:
    """The subscripts as functions of the statement's instances. Raises `BuildError`."""
    space = stmt.domain.get_space()
    try:
        parts = [to_pw_aff(e, space) for e in load.index]
    except NotAffine as e:
        raise BuildError(f"'{load.array}' cannot be promoted: a subscript in {stmt.name} is not affine ({e})") from None
    out = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, 0, len(parts)).range().set_tuple_name(isl.dim_type.set, load.array)
    result = isl.MultiPwAff.zero(space.map_from_domain_and_range(out.align_params(space)))
    for d, part in enumerate(parts):
        result = result.set_pw_aff(d, part)
    return result


class Times:
    """The values of the loops around a node of a schedule: `{ instance -> t }` both ways."""

    def __init__(self, at: isl.ScheduleNode) -> None:
        self.of_instances: isl.UnionMap = at.get_prefix_schedule_relation()
        self.to_instances: isl.UnionMap = self.of_instances.reverse()


def plan_promotion(
    scop: Scop, node: Promote, times: Times, active: Mapping[str, isl.Set], number: int,
    outer: tuple[Member, ...] = (),
) -> Promotion | None:  # fmt: skip
    """Box, buffer and copies of a Promote node at `times`, inside the loops `outer`; None if
    nothing touches it. A shared buffer holds what all threads of the block touch: loops bound to
    threads do not count.

    Raises:
        BuildError: the box has no constant or parametric bound, or the array of a shared buffer
            inside loops over threads is written there.
    """
    prefix = times.of_instances
    reads, sure, may = _touched(scop, node.array, times, active)
    writes = _join(sure, may)
    threads = [d for d, m in enumerate(outer) if m.kind.startswith("thread.")] if node.space == "shared" else []
    if threads and reads is not None:
        if writes is not None:
            raise BuildError(
                f"'{node.array}' is written below loop '{outer[threads[-1]].name}', whose iterations are threads: "
                f"promote it to shared memory outside that loop"
            )
        reads = _of_all_threads(reads, threads)
    touched = _join(reads, writes)
    if touched is None:
        return None
    touched = touched.coalesce()
    array = scop.arrays[node.array]
    rank = len(array.shape)
    layout = node.layout if node.layout is not None else tuple((d, 1, 0) for d in range(rank))
    boxes = [_box(scop, node, touched, d) for d in range(rank)]
    shape = tuple(_laid_out_size(boxes[dim][1], div, mod) for dim, div, mod in layout)
    depth = touched.dim(isl.dim_type.in_)
    buffer = Buffer(node.buffer, array.dtype, shape, node.space, promoted=node.buffer)
    result = Promotion(number, node.array, buffer, layout, tuple(b[0] for b in boxes), prefix, depth)
    near = _contiguous(array.shape)
    if node.copy_in:
        needed = _join(read_first(scop, node, prefix, active, reads), may if node.copy_out else None)
        result.copy_in = _copy(result, needed, True, node, near, outer)
    if node.copy_out:
        # What was not copied in and may be unset stays here: legality saw to it that nobody needs it.
        result.copy_out = _copy(result, writes if node.copy_in else sure, False, node, near, outer)
    return result


def _contiguous(shape: Sequence[Expr]) -> int:
    """The dimension of an array whose neighbours are neighbours in memory: the last one that has any."""
    return max((d for d, n in enumerate(shape) if n != const_int(1)), default=len(shape) - 1)


def _touched(
    scop: Scop, array: str, times: Times, active: Mapping[str, isl.Set]
) -> tuple[isl.Map | None, isl.Map | None, isl.Map | None]:
    """`{ [t] -> A[x] }` read, surely written, and written only if data say so (None = nothing)."""
    found: dict[str, isl.Map | None] = {"read": None, "sure": None, "may": None}
    for name, domain in active.items():
        stmt = scop.statements[name]
        for _, access, write in accesses(scop, stmt, array):
            access = access.intersect_domain(domain)
            pairs = times.to_instances.apply_range(isl.UnionMap.from_map(access))
            if not pairs.is_empty():
                how = "read" if not write else "sure" if _writes_surely(stmt, array) else "may"
                found[how] = _join(found[how], isl.Map.from_union_map(pairs))
    return found["read"], found["sure"], found["may"]


def _of_all_threads(touched: isl.Map, threads: list[int]) -> isl.Map:
    """`{ [t] -> A[x] }` with what the other threads touch at the same values of the other loops."""
    prefixes = touched.domain()
    alike = isl.Map.from_domain_and_range(prefixes, prefixes)
    for d in range(prefixes.dim(isl.dim_type.set)):
        if d not in threads:
            alike = alike.equate(isl.dim_type.in_, d, isl.dim_type.out, d)
    return alike.apply_range(touched)


def read_first(
    scop: Scop, node: Promote, prefix: isl.UnionMap, active: Mapping[str, isl.Set], reads: isl.Map | None
) -> isl.Map | None:
    """The part of `reads` whose first access below the node is not a certain write.

    When the exact answer costs too much, all of `reads`: copying more in is harmless.
    """
    if reads is None or not any(_writes_surely(scop.statements[s], node.array) for s in active):
        return reads
    try:
        with quota(FIRST_ACCESS_QUOTA):
            written = _first_times(scop, node, prefix, active, True)
            read = _first_times(scop, node, prefix, active, False)
            if written is None or read is None:
                return reads
            earlier = written.lex_lt_map(read)
            same = isl.Map.identity(earlier.get_space())
            covered = earlier.intersect(same).domain().unwrap()
            return reads.subtract(covered).coalesce()
    except QuotaExceeded:
        return reads


def _writes_surely(stmt: Statement, array: str) -> bool:
    return stmt.array == array and stmt.predicate is None and not stmt.dynamic


def _first_times(
    scop: Scop, node: Promote, prefix: isl.UnionMap, active: Mapping[str, isl.Set], write: bool
) -> isl.Map | None:
    """`{ [[t] -> A[x]] -> [time below the node] }` of the first read or certain write."""
    found: isl.Map | None = None
    for local in time_maps(node.child, active):
        stmt = scop.statements[local.get_tuple_name(isl.dim_type.in_)]
        if write and not _writes_surely(stmt, node.array):
            continue
        above = isl.Map.from_union_map(prefix.intersect_domain(isl.UnionSet.from_set(stmt.domain)))
        for _, access, is_write in accesses(scop, stmt, node.array):
            if is_write == write:
                found = _join(found, above.range_product(access).reverse().apply_range(local))
    return None if found is None else found.lexmin()


def _join(a: isl.Map | None, b: isl.Map | None) -> isl.Map | None:
    if a is None or b is None:
        return b if a is None else a
    return a.union(b)


def _box(scop: Scop, node: Promote, touched: isl.Map, d: int) -> tuple[isl.PwAff, Expr]:
    """Offset (a function of t) and extent of one dimension.

    An offset without cases that is a lower bound everywhere is preferred, if the box stays as small.
    """
    touched = touched.intersect_params(scop.context)
    low, high = touched.dim_min(d).coalesce(), touched.dim_max(d).coalesce()
    one = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(low.get_domain_space())).set_constant_val(isl.Val(1))

    def extent(offset: isl.PwAff) -> Expr:
        return _largest(scop, node, high.sub(offset).add(isl.PwAff.from_aff(one)), d)

    smallest = extent(low)
    domain = low.domain()
    for _, piece in low.get_pieces():
        total = isl.PwAff.from_aff(piece)
        if domain.is_subset(low.ge_set(total)) and _size_of(extent, total) == smallest:
            return total, smallest
    return low, smallest


def _size_of(extent: Callable[[isl.PwAff], Expr], offset: isl.PwAff) -> Expr | None:
    try:
        return extent(offset)
    except BuildError:
        return None


def _largest(scop: Scop, node: Promote, extent: isl.PwAff, d: int) -> Expr:
    values = isl.Map.from_pw_aff(extent).range()
    # Not extent.max_val(): pieces like i / 3, integers on their own domain only, are an error there.
    largest = values.dim_max_val(0)
    if largest.is_int():
        return const_int(largest.to_python())
    if not values.dim_is_bounded(isl.dim_type.set, 0):
        raise BuildError(f"the part of '{node.array}' that '{node.buffer}' holds is unbounded in dimension {d}")
    bound = values.dim_max(0)
    build = isl.AstBuild.from_context(scop.context)
    return to_expr(build.expr_from_pw_aff(bound), {p: Var(p) for p in scop.params})


def _laid_out_size(extent: Expr, div: int, mod: int) -> Expr:
    if mod:
        return const_int(mod)
    if isinstance(extent, Const):
        return const_int(-(-int(extent.value) // div))
    if div == 1:
        return extent
    return Binary("//", Binary("+", extent, const_int(div - 1), extent.dtype), const_int(div), extent.dtype)


def _copy(
    p: Promotion, moved: isl.Map | None, fill: bool, node: Promote, near: int, outer: tuple[Member, ...]
) -> Copy | None:  # fmt: skip
    if moved is None or moved.is_empty():
        return None
    name = f"{node.buffer}_{'in' if fill else 'out'}_{p.number}"
    moved = moved.coalesce()
    extension = moved.domain_map().reverse().flatten_range().set_tuple_name(isl.dim_type.out, name)
    to_prefix = prefix_of(extension.get_space().range(), p.depth)
    index = p.buffer_index(copied_element(extension.get_space().range(), p), to_prefix)
    lanes = _lane_dimension(p, node, fill, near)
    order = [k for k in range(len(index)) if k != lanes] + ([] if lanes is None else [lanes])
    shared = _shared_dimension(p, order[:-1], node, outer)
    loops = []
    for k in order:
        label = f"{node.buffer}.{'in' if fill else 'out'}{k}"
        kind: LoopKind = "vector" if k == lanes else "parallel" if k == shared else _copy_kind(p, k, node)
        loops.append((Member(label, {name: index[k]}, kind), index[k]))
    return Copy(name, p.number, fill, p.buffer.dtype, extension, p.depth, tuple(loops))


def _lane_dimension(p: Promotion, node: Promote, fill: bool, near: int) -> int | None:
    """The buffer dimension whose copy loop is a vector: the array's contiguous one, `near`.

    It must be the buffer's last, too, unless the copy reads registers: shuffles transpose them. Where no dimension of
    registers is contiguous in the array, a vector of them stays one until its lanes are stored one by one.
    """
    last = len(p.layout) - 1
    from_registers = node.space == "register" and not fill
    for k, (dim, div, mod) in enumerate(p.layout):
        if dim == near and div == 1 and _long(p, k) and (k == last or (from_registers and not mod)):
            return k
    return last if last >= 0 and from_registers and p.layout[last][1:] == (1, 0) and _long(p, last) else None


def _long(p: Promotion, k: int) -> bool:
    """Whether a dimension of the buffer has more than one element."""
    return p.buffer.shape[k] != const_int(1)


def _copy_kind(p: Promotion, k: int, node: Promote) -> LoopKind:
    """Short innermost loops and those of registers are unrolled."""
    size = p.buffer.shape[k]
    short = isinstance(size, Const) and size.value <= UNROLL_LIMIT
    return "unroll" if short and (node.space == "register" or k == len(p.layout) - 1) else "serial"


def _shared_dimension(p: Promotion, order: list[int], node: Promote, outer: tuple[Member, ...]) -> int | None:
    """The buffer dimension whose copy loop the threads share: the outermost that is no single iteration, of a large
    buffer that is filled or emptied while they wait."""
    if node.space != "heap" or any(m.kind == "parallel" for m in outer):
        return None
    sizes = [int(e.value) if isinstance(e, Const) else SHARED_COPY for e in p.buffer.shape]
    if prod(sizes) < SHARED_COPY or all(m.kind != "parallel" for m in loops_below(node.child)):
        return None
    return next((k for k in order if sizes[k] > 1), None)


def prefix_of(space: isl.Space, depth: int) -> isl.PwMultiAff:
    """`{ copy[t, x] -> [t] }`."""
    return _projection(space, 0, depth)


def copied_element(space: isl.Space, p: Promotion) -> isl.MultiPwAff:
    """`{ copy[t, x] -> A[x] }`."""
    return isl.MultiPwAff.from_pw_multi_aff(_projection(space, p.depth, len(p.offset), p.array))


def _projection(space: isl.Space, first: int, count: int, name: str | None = None) -> isl.PwMultiAff:
    params = space.params()
    out = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, 0, count).range().align_params(params)
    m = isl.Map.universe(space.map_from_domain_and_range(out))
    if name is not None:
        m = m.set_tuple_name(isl.dim_type.out, name)
    for i in range(count):
        m = m.equate(isl.dim_type.in_, first + i, isl.dim_type.out, i)
    return isl.PwMultiAff.from_map(m)


def copy_extension(copy: Copy, members: dict[str, Member]) -> isl.ScheduleNode:
    """The tree to graft: the copy's instances under one band per buffer dimension."""
    node = isl.ScheduleNode.from_extension(isl.UnionMap.from_map(copy.extension)).child(0)
    return _loops(node, copy.loops, members).root()


def loose_extension(copy: Copy, members: dict[str, Member], mark: str) -> isl.ScheduleNode:
    """The same without remainders (`polyc.emit.lowering.schedule_to_isl.loosened`): loops over the array's elements,
    and more of them than are copied; the mark says which."""
    shown = isl.Map.from_basic_map(copy.extension.remove_divs().polyhedral_hull())
    node = isl.ScheduleNode.from_extension(isl.UnionMap.from_map(shown)).child(0)
    space = copy.extension.get_space().range()
    loops = []
    for k in range(space.dim(isl.dim_type.set) - copy.depth):
        element = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(space), isl.dim_type.set, copy.depth + k)
        loops.append((Member(f"{copy.name}.{k}", {copy.name: element}), element))
    node = _loops(node, tuple(loops), members)
    return node.insert_mark(isl.Id(mark, context=isl.DEFAULT_CONTEXT)).root()


def _loops(
    node: isl.ScheduleNode, loops: tuple[tuple[Member, isl.PwAff], ...], members: dict[str, Member]
) -> isl.ScheduleNode:
    """One band with a mark per loop; returns the node below them."""
    for member, pa in loops:
        label = member.name
        n = 0
        while label in members:
            n += 1
            label = f"{member.name}_{n}"
        members[label] = Member(label, member.schedule, member.kind, member.factor)
        upa = isl.UnionPwAff.from_pw_aff(pa)
        node = node.insert_partial_schedule(isl.MultiUnionPwAff.from_union_pw_aff(upa))
        node = node.insert_mark(isl.Id("loop:" + label, context=isl.DEFAULT_CONTEXT)).child(0).child(0)
    return node
