"""`tile_product` as a user applies it: the product, what belongs to it and its tiles found, then `tiled`.

What is not said is found by access relations: which statement is a product, which statements give it its first value
or go over its result point by point, which of its loops moves which operand.
"""

from __future__ import annotations

from collections.abc import Sequence

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Load, Var, variables
from polyc.poly.forms.layout_maps import in_order, in_panels
from polyc.poly.records import dataclass
from polyc.poly.tree import Filter, Node
from polyc.scheduler.cost.gpu_tiles import LANES, PANEL_DEPTH
from polyc.scheduler.cost.register_tile import HAND_COLUMNS, HAND_ROWS
from polyc.scheduler.programs.block_tiles import BlockTile, BlockTiling, TiledContraction
from polyc.scheduler.programs.tiles import Kept, Part, Place, TiledProduct, tiled
from polyc.scheduler.recognition.contraction import (
    Operand,
    extent,
    recognise,
    recognise_sweep,
    why_no_contraction,
)
from polyc.scheduler.recognition.group import (
    Group,
    examine_nests,
    tile_is_filled,
    used_outside,
    written_arrays,
)
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.transformations.tree_edit import is_dynamic, locate


@dataclass(frozen=True)
class _Asked:
    """The arguments of `tile_product`, with the loops found."""

    group: Group
    rows: int
    columns: int
    row: str | None
    column: str
    lanes: int | None
    block: int | None
    depth: int | None
    order: tuple[str, ...]
    pack: tuple[str, ...]
    parallel: str | None


def tile_product(
    s: Schedule, update: str | None = None, rows: int = HAND_ROWS, columns: int = HAND_COLUMNS, *,
    row: str | None = None, column: str | None = None, lanes: int | None = None, block: int | None = None,
    depth: int | None = None, order: Sequence[str] = (), pack: Sequence[str] | str = (), parallel: str | None = None,
    thread: tuple[int, int] | None = None,
) -> Schedule:  # fmt: skip
    """Compute a product (or another reduction) tile by tile, the tile of the result in registers meanwhile.

    Arguments: `update`, the statement, default the only product; `rows`, `columns`, iterations in a tile: columns are
    vector lanes (`lanes` of them together, default what the target has), rows are unrolled; `row`, `column`, which
    loops of the program these are, default the last that moves one operand alone and the one along which the result
    lies in memory; `block`, rows after which columns begin anew; `depth`, iterations of the longest reduction loop
    that are a loop of their own; `order`, the loops around a tile, outermost first; `pack`, operands that are copied
    once, in panels as wide as the tile; `parallel`, the loop that all threads share. On a GPU `thread=(8, 8)` are the
    rows and columns of one thread, `rows` and `columns` those of a block, whose panels of `depth` (8) iterations of
    both operands are in shared memory. Statements that give the result its first value, or go over it point by point
    afterwards, are found and join the tile, in nests of their own or not.
    Before -> after: `i: j: (C = 0; k: C += A * B)` -> `j.out: i.out: (C tile = 0; k: C tile += A * B)`.
    Refused when: there is no such product; its loops are cut already; a dependence would run backwards.
    """
    for name, number in (("rows", rows), ("columns", columns), ("lanes", lanes), ("block", block), ("depth", depth)):
        if number is not None and (not isinstance(number, int) or number < 1):
            raise ScheduleError(f"tile_product: {name} is a positive integer, not {number!r}")
    group = _found(s, update)
    loops = _loops(group, row, column)
    if thread is not None:
        said = {"lanes": lanes, "block": block, "order": order, "pack": pack, "parallel": parallel}
        wrong = [name for name, value in said.items() if value]
        if wrong:
            raise ScheduleError(f"tile_product: {wrong[0]} is for CPUs, thread for GPUs: give one of them")
        product = _of_blocks(s, group, loops, _block(rows, columns, depth, thread))
    else:
        packed = (pack,) if isinstance(pack, str) else tuple(pack)
        product = _of_registers(
            s, _Asked(group, rows, columns, *loops, lanes, block, depth, tuple(order), packed, parallel)
        )
    return s.in_one_check(lambda one: tiled(_gathered(one, group), product), f"tile_product of {product.update}")


# ---- what belongs together ----


def _found(s: Schedule, update: str | None) -> Group:
    """The product with the statements that belong to it."""
    scop = s.scop
    if update is None:
        products = [n for n, x in scop.statements.items() if recognise(x) is not None]
        if len(products) != 1:
            known = f"several statements are products ({', '.join(products)})" if products else "no statement is one"
            raise ScheduleError(f"tile_product: {known}: say which is meant with update=")
        update = products[0]
    if update not in scop.statements:
        raise ScheduleError(f"tile_product: no statement '{update}', only {', '.join(scop.statements)}")
    stmt = scop.statements[update]
    if recognise(stmt) is None and recognise_sweep(stmt) is None:
        raise ScheduleError(f"tile_product: {update} is no product: {why_no_contraction(stmt)}")
    order = _in_order(s.tree, list(scop.statements))
    before = order[: order.index(update)]
    first = [n for n in before if scop.statements[n].array == stmt.array and scop.statements[n].reduction is None]
    each = [[n] for n in (*(n for n in before if n not in first), *first, *order[len(before) :])]
    for position in range(len(each)):
        found = examine_nests(scop, each, position)
        if not isinstance(found, str) and found[0].contraction.update.name == update:
            return found[0]
    raise ScheduleError(f"tile_product: {update} has no tile")


def _in_order(node: Node, alive: Sequence[str]) -> list[str]:
    """Statements as they come in the text of the schedule, each once."""
    if isinstance(node, Filter):
        alive = [n for n in alive if n in node.domain]
    if not node.children():
        return list(alive)
    return list(dict.fromkeys(n for c in node.children() for n in _in_order(c, alive)))


def _gathered(s: Schedule, group: Group) -> Schedule:
    """The schedule with the group's statements in nests that hold no others, and stand side by side."""
    ours = [x.name for x in group.statements()]
    s = _alone(s, set(ours))
    order = _in_order(s.tree, list(s.scop.statements))
    at = [order.index(n) for n in ours]
    between = [n for n in order[min(at) : max(at)] if n not in ours]
    nests = {
        next((m for m in s.loops if n in locate(s.tree, m).member.schedule), n): n for n in (*between, *ours)[::-1]
    }
    return s.reorder_statements(list(nests.values())[::-1]) if between else s


def _alone(s: Schedule, ours: set[str]) -> Schedule:
    """The schedule with these statements in nests that hold no others."""
    while True:
        shared = next((n for n in s.loops if _mixed(s, n, ours)), None)
        if shared is None:
            return s
        if is_dynamic(s.scop, locate(s.tree, shared).member):
            raise ScheduleError(f"tile_product: data end loop {shared}, which holds other statements, too")
        s = s.distribute(shared)


def _mixed(s: Schedule, loop: str, ours: set[str]) -> bool:
    inside = set(locate(s.tree, loop).member.schedule)
    return bool(inside & ours) and bool(inside - ours)


def _loops(group: Group, row: str | None, column: str | None) -> tuple[str | None, str]:
    """The outputs that are rows and columns of a tile."""
    c = group.contraction
    for said in (row, column):
        if said is not None and said not in c.outputs:
            raise ScheduleError(f"tile_product: '{said}' does not move the result, only {', '.join(c.outputs)}")
    if row is not None and row == column:
        raise ScheduleError(f"tile_product: '{row}' is either the row or the column")
    free = [o for o in c.outputs if o != row]
    lying = [e.name for e in c.update.index[-1:] if isinstance(e, Var)]
    alone = [o for op in c.operands for o in op.own if o != row]
    column = column or next((o for o in (*(x for x in lying if x in alone), *alone[::-1], *free[::-1])), None)
    if column is None:
        raise ScheduleError(f"tile_product: nothing but '{row}' moves the result")
    other = next((op for op in c.operands if column not in op.own and op.own), None)
    mine = [o for o in (other.own if other else ()) if o != column]
    return row or (mine[-1] if mine else None), column


# ---- tiles in registers, on a CPU ----


def _of_registers(s: Schedule, asked: _Asked) -> TiledProduct:
    group, c = asked.group, asked.group.contraction
    cuts: dict[str, tuple[int, ...]] = {asked.column: (asked.columns,)}
    points = [Part(asked.column, 1, "vector", asked.lanes)]
    if asked.row is not None:
        cuts[asked.row] = (asked.block, asked.rows) if asked.block else (asked.rows,)
        points.insert(0, Part(asked.row, 2 if asked.block else 1, "unroll"))
    outer = _outer(asked)
    reductions = [Part(n) for n in c.inner]
    if asked.depth:
        longest = _longest(group)
        cuts[longest] = (asked.depth,)
        reductions = [Part(longest), *(p for p in reductions if p.loop != longest), Part(longest, 1)]
    at = outer[-1].place
    kept = [_register_tile(s, asked, array, at) for array in written_arrays(s.scop, group)]
    kept += [_packed(asked, array, outer[0].place) for array in asked.pack]
    return TiledProduct(
        tuple(x.name for x in group.statements()), c.update.name, group.iters, cuts, tuple(outer), tuple(points),
        (*reductions, *points), tuple(kept),
    )  # fmt: skip


def _outer(asked: _Asked) -> list[Part]:
    """The loops around a tile."""
    outputs = asked.group.contraction.outputs
    last = [o for o in (asked.column, asked.row) if o is not None]
    order = asked.order or (*(o for o in outputs if o not in last), *last)
    if sorted(order) != sorted(outputs):
        raise ScheduleError(f"tile_product: order names each of {', '.join(outputs)} once, not {', '.join(order)}")
    found = [Part(o) for o in order]
    if asked.block:
        if asked.row is None:
            raise ScheduleError("tile_product: a block of rows, but no loop moves one operand alone as rows")
        found[order.index(asked.row)] = Part(asked.row, 1)
        found.insert(min(order.index(o) for o in last), Part(asked.row, 0))
    if asked.parallel is None:
        return found
    if asked.parallel not in order:
        raise ScheduleError(f"tile_product: '{asked.parallel}' cannot be parallel, only {', '.join(order)}")
    first = next(k for k, p in enumerate(found) if p.loop == asked.parallel)
    found[first] = Part(*found[first].place, "parallel")
    return found


def _longest(group: Group) -> str:
    """The reduction loop with most iterations; one whose number sizes decide before all others."""
    c = group.contraction
    return max(c.inner, key=lambda o: (extent(c.update, o) is None, extent(c.update, o) or 0))


def _register_tile(s: Schedule, asked: _Asked, array: str, at: Place) -> Kept:
    """The results of a tile, in registers until they are complete; vector dimension last."""
    stmt = next(x for x in asked.group.statements() if x.array == array)
    lanes = stmt.index.index(Var(asked.group.iters[stmt.name][asked.column]))
    dims = sorted(range(len(stmt.index)), key=lambda k: k == lanes)
    moves = tile_is_filled(asked.group, array), used_outside(s.scop, asked.group, array)
    return Kept(array, None, "register", in_order(dims), at, None, *moves)


def _packed(asked: _Asked, array: str, around: Place) -> Kept:
    """An operand copied once, in panels of the tile's columns or rows."""
    operands = [op.load for op in asked.group.contraction.operands]
    load = next((x for x in operands if x.array == array), None)
    if load is None or not load.index:
        known = ", ".join(x.array for x in operands if x.index)
        raise ScheduleError(f"tile_product: '{array}' is no operand, only {known}")
    sides = ((asked.column, asked.columns), (asked.row, asked.rows))
    side = next(((name, width) for name, width in sides if name in _moving(load)), None)
    if side is None:
        raise ScheduleError(f"tile_product: {array} is the same for all tiles: there are no panels of it")
    name, width = side
    dims = [k for k, e in enumerate(load.index) if e == Var(name or "")]
    if len(dims) != 1 or sum(name in variables(e) for e in load.index) != 1:
        raise ScheduleError(f"tile_product: {array} has no panels along '{name}': that is no subscript by itself")
    return Kept(array, None, "heap", in_panels(len(load.index), dims[0], width), None, around)


def _moving(load: Load) -> set[str]:
    return set().union(*(variables(e) for e in load.index))


# ---- tiles of blocks and threads, on a GPU ----


def _block(rows: int, columns: int, depth: int | None, thread: Sequence[int]) -> BlockTile:
    """The tile of a block, which its threads share evenly."""
    if len(thread) != 2:
        raise ScheduleError(f"tile_product: thread is rows and columns, not {thread}")
    high, wide = thread
    if min(high, wide) < 1 or rows % high or columns % wide:
        raise ScheduleError(
            f"tile_product: threads of {high} x {wide} do not fill a block of {rows} x {columns}: its rows and "
            "columns are multiples of theirs"
        )
    if wide % LANES:
        raise ScheduleError(f"tile_product: a thread has a multiple of {LANES} columns, not {wide}")
    return BlockTile(rows, columns, depth or PANEL_DEPTH, high, wide)


def _of_blocks(s: Schedule, group: Group, loops: tuple[str | None, str], tile: BlockTile) -> TiledProduct:
    row, column = loops
    left, right = _sides(group, row, column)
    assert row is not None
    chosen = TiledContraction(group, left, right, row, column, _longest(group), tile)
    return BlockTiling(s.scop, chosen).product()


def _sides(group: Group, row: str | None, column: str) -> tuple[Operand, Operand]:
    """The operand that moves with the rows, and the one that moves with the columns."""
    operands = group.contraction.operands
    right = next((op for op in operands if column in op.own), None)
    left = next((op for op in operands if op is not right and row in op.own), None)
    if left is None or right is None:
        raise ScheduleError("tile_product: a block of a GPU shares two operands, which rows and columns move alone")
    return left, right
