"""Moving arrays to smaller buffers: `promote`, `contract`. Pure tree edits, unchecked.

Both insert a `Promote` node; `contract` is for an array that no value of which lives on
outside one iteration of the loops above it, so nothing is copied.

A buffer that cannot be (no such array, an extent without a bound, a name that is taken) is a `ScheduleError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from typing import Literal

import islpy as isl

from polyc.poly.access import Access, accesses, array_elements, element_map
from polyc.poly.cache import per_scop
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Const, Expr, Var, loads
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine import is_affine, to_pw_aff
from polyc.poly.forms.layout_maps import in_order
from polyc.poly.ordering.narrowing import facts
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import (
    Band,
    Filter,
    Layout,
    Member,
    Node,
    Promote,
    Sequence,
    Space,
    promotions_below,
    time_map,
)
from polyc.scheduler.transformations.tree_edit import (
    Path,
    Spot,
    is_endless,
    locate,
    outer_members,
    paths,
    put,
    used_names,
)

SPACES: tuple[Space, ...] = ("register", "local", "shared", "heap")


@dataclass(frozen=True)
class Place:
    """Where a Promote can go: above the node at the end of `path`, or inside the band there
    after `members` of its loops (0 = above it)."""

    path: Path
    node: Node
    members: int

    def loops(self) -> list[Member]:
        """All loops around the place, outermost first."""
        inside = list(self.node.members[: self.members]) if isinstance(self.node, Band) else []
        return [*outer_members(self.path), *inside]

    def insert(self, promote: Promote) -> Node:
        """The tree with `promote` (its child is replaced) at this place."""
        node = self.node
        if not isinstance(node, Band) or self.members == 0:
            return put(self.path, promote.with_children((node,)))
        head, tail = node.members[: self.members], node.members[self.members :]
        below: Node = Band(tail, node.child, node.permutable) if tail else node.child
        return put(self.path, Band(head, promote.with_children((below,)), node.permutable))


def touches(stmt: Statement, array: str) -> tuple[bool, bool]:
    """Whether the statement reads and writes the array."""
    return any(load.array == array for e in _read_by(stmt) for load in loads(e)), stmt.array == array


def _read_by(stmt: Statement) -> list[Expr]:
    """The expressions that the statement evaluates."""
    condition = [] if stmt.predicate is None else [stmt.predicate]
    return [*stmt.index, stmt.value, *condition, *(e for b in stmt.dynamic for e in (b.lo, b.hi))]


def users(scop: Scop, array: str) -> frozenset[str]:
    """Statements that touch the array."""
    return _users(scop).get(array, frozenset())


@per_scop
def _users(scop: Scop) -> dict[str, frozenset[str]]:
    """Statements that touch each array."""
    found: dict[str, set[str]] = {}
    for s in scop.statements.values():
        for array in {s.array, *(load.array for e in _read_by(s) for load in loads(e))}:
            found.setdefault(array, set()).add(s.name)
    return {array: frozenset(names) for array, names in found.items()}


def statements_below(scop: Scop, path: Path) -> frozenset[str]:
    """Statements that reach the end of a path (by the filters on it)."""
    alive = frozenset(scop.statements)
    for node, _ in path:
        if isinstance(node, Filter):
            alive &= frozenset(node.domain)
    return alive


def covering_places(scop: Scop, tree: Node, array: str) -> Iterator[Place]:
    """Places above all accesses of the array, deepest first."""
    for path, node in reversed(_covering(tree, users(scop, array))):
        if isinstance(node, Filter):
            continue
        if isinstance(node, Band):
            for k in range(len(node.members), 0, -1):
                if k < len(node.members) or not isinstance(node.child, Band):
                    yield Place(path, node, k)
        if not (path and isinstance(path[-1][0], Band)):
            yield Place(path, node, 0)


def _covering(tree: Node, need: frozenset[str]) -> list[tuple[Path, Node]]:
    """The nodes, from the root down, below which are all instances of some statements, with their paths.

    No other branch holds instances of them (a statement may be split by filters), so they are one path.
    """
    path: Path = ()
    node = tree
    found: list[tuple[Path, Node]] = [(path, node)] if need else []
    while need:
        child = 0
        if isinstance(node, Sequence):
            holding = [k for k, f in enumerate(node.filters) if any(s in f.domain for s in need)]
            if len(holding) != 1:
                break
            child = holding[0]
        elif isinstance(node, Filter) and not all(s in node.domain for s in need):
            break
        below = node.children()
        if not below:
            break
        path, node = (*path, (node, child)), below[child]
        found.append((path, node))
    return found


def _subscripts(s: Statement, array: str) -> Iterator[Expr]:
    """All subscripts with which the statement reads or writes the array."""
    exprs = [s.target, s.value, *([] if s.predicate is None else [s.predicate])]
    return (i for e in exprs for x in loads(e) if x.array == array for i in x.index)


def check_affine(stmts: Iterable[Statement], array: str) -> None:
    """Refuse an array whose place in a buffer cannot be computed from the loops."""
    for s in stmts:
        space = s.domain.get_space()
        if any(not is_affine(i, space) for i in _subscripts(s, array)):
            raise ScheduleError(f"array '{array}' cannot get a buffer: a subscript in {s.name} depends on data")
        if any(x.array == array for b in s.dynamic for e in (b.lo, b.hi) for x in loads(e)):
            raise ScheduleError(f"array '{array}' cannot get a buffer: a loop bound of {s.name} reads it")


def check_bounded(scop: Scop, stmts: SequenceOf[Statement], array: str, loops: list[Member]) -> None:
    """Refuse an array of which data-dependent loops decide how much the buffer holds: its box has no known end.

    Such a loop inside the buffer's lifetime sweeps the array; one around it may choose an
    element far from the others (then only the end of the array bounds the box).
    """
    around = {m.name for m in loops}
    for s in stmts:
        inside = {d.iter for d in s.dynamic} - around
        used = {v.name for i in _subscripts(s, array) for v in walk_expr(i) if isinstance(v, Var)}
        if inside & used:
            raise ScheduleError(
                f"array '{array}' cannot get a buffer here: in {s.name} the data-dependent loop "
                f"'{min(inside & used)}' decides which elements are touched"
            )
    dynamic = next((s for s in stmts if s.dynamic), None)
    if dynamic and not spread(scop, array, loops).is_equal(spread(scop, array, loops, "array")):
        raise ScheduleError(
            f"array '{array}' cannot get a buffer here: in {dynamic.name} the data-dependent loop "
            f"'{dynamic.dynamic[0].iter}' decides how far apart its elements are"
        )


def check_shared(scop: Scop, tree: Node) -> None:
    """Refuse a shared buffer inside a loop over threads whose array is written there.

    All threads of a block hold one buffer together, so each would copy out what others write.
    """
    if not any(p.space == "shared" for p in promotions_below(tree)):
        return
    for path, node in paths(tree):
        if not isinstance(node, Promote) or node.space != "shared":
            continue
        threads = [m.name for m in outer_members(path) if m.kind.startswith("thread.")]
        writers = [s for s in sorted(statements_below(scop, path)) if scop.statements[s].array == node.array]
        if threads and writers:
            raise ScheduleError(
                f"array '{node.array}' cannot be in shared memory inside loop '{threads[-1]}', whose iterations are "
                f"threads: {writers[0]} writes it there (promote it outside of that loop)"
            )


def check_buffers(scop: Scop, tree: Node) -> None:
    """Refuse a tree in which the name of a buffer is none, or an array's, or stands for two arrays."""
    holds: dict[str, str] = {}
    for node in promotions_below(tree):
        wrong = f"the buffer of '{node.array}' cannot be called '{node.buffer}': "
        if not node.buffer.isidentifier():
            raise ScheduleError(f"{wrong}that is no name")
        if node.buffer in scop.arrays:
            raise ScheduleError(f"{wrong}an array has that name")
        if holds.setdefault(node.buffer, node.array) != node.array:
            raise ScheduleError(f"{wrong}the buffer of '{holds[node.buffer]}' has that name")


def footprint(scop: Scop, array: str, loops: list[Member]) -> list[int | None]:
    """Extent of the box that one iteration of `loops` touches, per dimension; None when unbounded."""
    return _extents(spread(scop, array, loops))


def has_constant_box(scop: Scop, array: str, loops: list[Member]) -> bool:
    """Whether the box that one iteration of `loops` touches has a constant extent in each dimension.

    Most times blocks of one loop visibly hold each subscript, or the loops alone bound the box: without the
    statements' domains isl sees that in half the time.
    """
    if _held_by_blocks(scop, array, loops):
        return True
    return None not in _extents(spread(scop, array, loops, "anywhere")) or None not in footprint(scop, array, loops)


def _held_by_blocks(scop: Scop, array: str, loops: list[Member]) -> bool:
    """Whether for each dimension a loop runs over blocks of `n` values of the subscript, up to a number, in all
    accesses: then two of them in one iteration are less than `n` apart, up to a number."""
    found = [a for a in accesses(scop) if a.array == array and all(a.stmt in m.schedule for m in loops)]
    values = facts(scop).value

    def block(a: Access, d: int, m: Member) -> int | None:
        loop, subscript = values(m.schedule[a.stmt]), to_pw_aff(a.load.index[d], a.map.get_space().domain())
        if loop is None or loop.kind == "remainder" or not subscript.isa_aff():
            return None
        base = loop.base.align_params(subscript.get_space())  # a joined Scop has its parameters in several orders
        return loop.block if subscript.as_aff().align_params(base.get_space()).sub(base).is_cst() else None

    def held(d: int, m: Member) -> bool:
        blocks = {block(a, d, m) for a in found}
        return len(blocks) == 1 and None not in blocks

    return all(any(held(d, m) for m in loops) for d in range(len(scop.arrays[array].shape)))


def _extents(apart: isl.Set) -> list[int | None]:
    tops = [apart.dim_max_val(d) for d in range(apart.dim(isl.dim_type.set))]
    return [int(top.to_python()) + 1 if top.is_int() else None for top in tops]


def spread(
    scop: Scop, array: str, loops: list[Member], where: Literal["domain", "array", "anywhere"] = "domain"
) -> isl.Set:
    """Distances between two elements that one iteration of `loops` touches.

    `where`: "array" leaves out what is outside the array (data-dependent loops do not get there), "anywhere" takes
    instances outside of the statements' domains, too.
    """
    touched: isl.Map | None = None
    for a in accesses(scop):
        if a.array != array or any(a.stmt not in m.schedule for m in loops):
            continue
        domain, elements = scop.statements[a.stmt].domain, a.map
        if where == "anywhere":
            domain = isl.Set.universe(domain.get_space())
            elements = element_map(a.load, scop.arrays[array], domain.get_space())[0]
        elif where == "array":
            elements = elements.intersect_range(array_elements(scop.arrays[array], scop.params))
        part = time_map(domain, [m.schedule[a.stmt] for m in loops]).reverse().apply_range(elements)
        touched = part if touched is None else touched.union(part)
    assert touched is not None
    touched = touched.intersect_params(scop.context).coalesce()
    return touched.reverse().apply_range(touched).deltas()


def choose_space(extents: list[int | None], element_bytes: int, limit: int = 16384) -> Space:
    """`register` for one element, `local` for a small constant box, else `heap`."""
    size = element_bytes
    for e in extents:
        if e is None:
            return "heap"
        size *= e
    if size == element_bytes:
        return "register"
    return "local" if size <= limit else "heap"


@dataclass(frozen=True)
class Moves:
    """What a promotion does besides the redirection; None: as the accesses need it."""

    copy_in: bool | None = None
    copy_out: bool | None = None


AS_NEEDED = Moves()


def promote(
    scop: Scop, tree: Node, array: str, at: str, space: Space, layout: Layout | None = None, moves: Moves = AS_NEEDED,
    around: bool = False, buffer: str | None = None,
) -> Node:  # fmt: skip
    """Below loop `at`, accesses to the array go to a buffer that is copied in and out; `around`: once for the loop."""
    if array not in scop.arrays:
        raise ScheduleError(f"no array '{array}': the arrays are {', '.join(scop.arrays)}")
    if space not in SPACES:
        raise ScheduleError(f"no memory space '{space}': the spaces are {', '.join(SPACES)}")
    spot = locate(tree, at)
    inside = statements_below(scop, spot.path)
    below = [scop.statements[s] for s in spot.member.schedule if s in inside]
    used = [touches(s, array) for s in below]
    if not any(r or w for r, w in used):
        raise ScheduleError(f"array '{array}' is not used inside loop '{at}'")
    check_affine(below, array)
    place = _around(spot) if around else Place(spot.path, spot.band, spot.index + 1)
    check_bounded(scop, below, array, place.loops())
    known = all(isinstance(size, Const) for size in scop.arrays[array].shape)  # then it bounds every box
    if space == "register" and not known and not has_constant_box(scop, array, place.loops()):
        where = "around" if around else "inside"
        raise ScheduleError(f"array '{array}' has no constant extent {where} loop '{at}', as registers need")
    if buffer is not None and (not buffer.isidentifier() or buffer in used_names(scop, tree)):
        raise ScheduleError(f"the buffer cannot be called '{buffer}': that is no name, or something has it already")
    copy_in = True if moves.copy_in is None else moves.copy_in
    copy_out = any(w for _, w in used) if moves.copy_out is None else moves.copy_out
    endless = next((m.name for m in place.loops() if is_endless(scop, m)), None)
    decides = any(load.array == array for s in below if s.predicate is not None for load in loads(s.predicate))
    if endless is not None and (copy_out or decides):  # the copy would be done in every iteration, nothing end the loop
        how = "is written" if copy_out else "decides what runs"
        raise ScheduleError(f"array '{array}' {how} inside loop '{endless}', which a condition on data ends: "
                            "give it a buffer outside of that loop")  # fmt: skip
    if any(w for _, w in used):
        _check_handed_on(array, place, copy_out)
    node = Promote(array, buffer or buffer_name(scop, tree, array), space, spot.band, layout, copy_in, copy_out)
    return place.insert(node)


def _check_handed_on(array: str, place: Place, copy_out: bool) -> None:
    """Refuse a buffer that is copied out around or inside another one of a written array, where one inside is not."""
    around = [n for n, _ in place.path if isinstance(n, Promote) and n.array == array]
    below = [n for n in promotions_below(place.node) if n.array == array]
    dropped = [n.buffer for n in below if copy_out and not n.copy_out]
    if dropped or (not copy_out and any(n.copy_out for n in around)):
        inner = f"'{dropped[0]}', inside of it," if dropped else "this one, inside of it,"
        outer = "this buffer" if dropped else f"'{next(n.buffer for n in around if n.copy_out)}'"
        raise ScheduleError(f"array '{array}': {outer} is copied out, but {inner} is not (copy_out=False): "
                            "what is written would not reach it")  # fmt: skip


def _around(spot: Spot) -> Place:
    """Directly around a loop, and around the buffers that are made for it already."""
    if spot.index:
        return Place(spot.path, spot.band, spot.index)
    path: Path = spot.path
    node: Node = spot.band
    while path and isinstance(path[-1][0], Promote):
        path, node = path[:-1], path[-1][0]
    return Place(path, node, 0)


def full_layout(scop: Scop, array: str, layout: SequenceOf[int] | SequenceOf[SequenceOf[int]] | None) -> Layout | None:
    """A layout as `(dim, div, mod)` triples; a list of dimensions is a transposition.

    Raises:
        ScheduleError: it is neither.
    """
    if layout is None:
        return None
    rank = len(scop.arrays[array].shape) if array in scop.arrays else 0
    if all(isinstance(d, int) for d in layout):
        if sorted(layout) != list(range(rank)):  # type: ignore[type-var]
            raise ScheduleError(f"layout {list(layout)} names each of the {rank} dimensions of '{array}' once")
        return in_order(layout)  # type: ignore[arg-type]
    triples = [tuple(part) for part in layout]  # type: ignore[arg-type]
    if any(len(part) != 3 or not all(isinstance(x, int) for x in part) for part in triples):
        raise ScheduleError("a layout is a list of dimensions or of (dimension, divisor, modulus) triples")
    return tuple((d, div, mod) for d, div, mod in triples)


def promoted_below(node: Node, array: str) -> bool:
    """Whether the subtree holds a promotion of the array."""
    return any(n.array == array for n in promotions_below(node))


def contractions(scop: Scop, tree: Node, array: str, space: Space | None) -> Iterator[tuple[Node, Place]]:
    """Trees with the local array contracted, deepest place first."""
    if array not in scop.arrays:
        raise ScheduleError(f"no array '{array}': the arrays are {', '.join(scop.arrays)}")
    if scop.arrays[array].kind != "local":
        raise ScheduleError(f"array '{array}' is not local: only local arrays can be contracted")
    if promoted_below(tree, array):
        raise ScheduleError(f"array '{array}' is promoted already")
    if not users(scop, array):
        raise ScheduleError(f"array '{array}' is not used")
    using = [scop.statements[n] for n in users(scop, array)]
    check_affine(using, array)
    for place in covering_places(scop, tree, array):
        check_bounded(scop, using, array, place.loops())
        chosen = space
        if chosen is None:
            chosen = choose_space(footprint(scop, array, place.loops()), scop.arrays[array].dtype.bytes)
        node = Promote(array, buffer_name(scop, tree, array), chosen, place.node, None, False, False)
        yield place.insert(node), place


def buffer_name(scop: Scop, tree: Node, array: str) -> str:
    """A name that no array, buffer, parameter, iterator or statement has."""
    used = used_names(scop, tree)
    name, k = f"{array}_buf", 0
    while name in used:
        k += 1
        name = f"{array}_buf_{k}"
    return name
