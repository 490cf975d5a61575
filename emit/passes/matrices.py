"""Products of whole matrices: the reduction of a tile, for machines that multiply matrix registers (AMX).

    for ...:                                    matrices ...
        for k in range(depth):                  m0 = matrix T[0, 0]; ...
            for i in range(rows):         ->    for ...:
                for j in range(columns):            m4 = matrix A[..]; m6 = matrix B[..]; ...
                    T[i, j] += dot(A, B)            m0 += dot(m4 @ m6); ...
                                                matrix T[0, 0] = m0; ...

The tile is cut into matrices of at most `MATRIX_ROWS` x `MATRIX_WORDS`. All of its sums stay in registers for the whole
reduction, so there are as many as leave registers for the operands. Schedules are made so that this matches
(`scheduler.cost.matrix_tile`); what does not match stays as it is, which is right everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polyc.emit.loop_ir.linear import linear, rebuild, variables
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    MatrixMove,
    MatrixProduct,
    MatrixShapes,
    Stmt,
    Store,
    walk,
)
from polyc.emit.loop_ir.rewrite import Names, binders, over_bodies, with_bodies
from polyc.emit.passes.bounds import full
from polyc.emit.passes.matrix_starts import begun_at_zero
from polyc.emit.passes.simplify import simplify
from polyc.emit.passes.tile_rows import row_by_row
from polyc.poly.expr import Binary, Call, Expr, Load, Var, substitute
from polyc.poly.records import dataclass, replace
from polyc.poly.target import MATRIX_REGISTERS, MATRIX_ROWS, MATRIX_WORDS, Target

LEAST_ROWS = 2  # one row is a vector's work


def matrix_products(fn: Function, target: Target) -> Function:
    """Use matrix registers for the tiles whose products have the form."""
    if not target.matrix or not any(_dot(s, target) for s in walk(fn.body)):
        return fn
    simple = simplify(fn)
    names = Names({*fn.params, *(b.name for b in fn.buffers)} | binders(simple.body))
    body = _visit(simple.body, target, names.fresh)
    return fn if body is simple.body else replace(simple, body=_configured_once(body))


def _visit(stmt: Stmt, target: Target, fresh: Callable[[str], str]) -> Stmt:
    stmt, found = _life(stmt, target, fresh)
    return row_by_row(stmt) if found else stmt


def _life(stmt: Stmt, target: Target, fresh: Callable[[str], str]) -> tuple[Stmt, bool]:
    """The statement, and whether it is the life of a tile (and of others around it) with products of matrices."""
    if not isinstance(stmt, Alloc) or stmt.buffer.space not in ("register", "local"):
        return over_bodies(stmt, _visit, target, fresh), False
    body = _tile(stmt.body, stmt.buffer, target)
    if body is stmt.body:
        body, found = _life(body, target, fresh)
        return with_bodies(stmt, (body,)), found
    tile, body = replace(stmt.buffer, space="local"), _rolled(body)
    return begun_at_zero(tile, body, fresh) or Alloc(tile, body), True


def _tile(stmt: Stmt, tile: Buffer, target: Target) -> Stmt:
    """The statement with the products that are added to the tile in matrix registers."""
    if isinstance(stmt, For) and stmt.kind == "serial":
        found = _nest(stmt, tile, target)
        if found is not None:
            return _multiplied(found)
    return over_bodies(stmt, _tile, tile, target)


def _rolled(s: Stmt) -> Stmt:
    """Loops over the tile, which lies in memory now, as loops."""
    s = over_bodies(s, _rolled)
    return replace(s, kind="serial", factor=None) if isinstance(s, For) and s.kind == "unroll" else s


# ---- the form ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Matrix:
    """Elements `array[index + b * block + i * step]` for rows i of block b, words side by side."""

    array: str
    index: tuple[Expr, ...]
    step: tuple[int, ...]
    block: tuple[int, ...]

    def part(self, block: int, row: int, word: int) -> tuple[Expr, ...]:
        """Subscripts of a word."""
        shifts = [block * b + row * d for b, d in zip(self.block, self.step, strict=True)]
        moved = [rebuild(linear(e).shift(n)) for e, n in zip(self.index, shifts, strict=True)]
        return (*moved[:-1], rebuild(linear(moved[-1]).shift(word)))


@dataclass(frozen=True)
class _Nest:
    """`tile[i, j] += intrinsic(left[i, k], right[k, j])` (or `swapped`) in all iterations of `loops`."""

    loops: tuple[For, ...]
    blocks: int
    rows: int
    depth: int
    columns: int
    tile: _Matrix
    left: _Matrix
    right: _Matrix
    intrinsic: str
    swapped: bool


def _dot(s: Stmt, target: Target) -> Call | None:
    """The product that a store adds, if the machine has it for matrices."""
    if not isinstance(s, Store) or s.reduction != "+" or s.mask is not None:
        return None
    e: Expr = s.value
    if isinstance(e, Binary) and e.op == "+" and e.a == Load(s.array, s.index, e.dtype):
        e = e.b
        return e if isinstance(e, Call) and target.multiplies(e.fn) else None
    if not isinstance(e, Call) or not e.fn.endswith("_add") or not target.multiplies(e.fn.removesuffix("_add")):
        return None
    *factors, added = e.args
    if added != Load(s.array, s.index, e.dtype):
        return None
    return Call(e.fn.removesuffix("_add"), tuple(factors), e.dtype)


def _nest(loop: For, tile: Buffer, target: Target) -> _Nest | None:
    """The product whose outermost reduction loop this is."""
    loops, inner = [loop], loop.body
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    dot = _dot(inner, target)
    if dot is None or not isinstance(inner, Store) or inner.array != tile.name or len(loops) < 3:
        return None
    *around, deep, high, wide = loops
    over = None
    if deep.kind == "unroll" and around:  # rows of several lines of an image
        *around, deep, over, high, wide = loops
    if (deep.kind, high.kind, wide.kind) != ("serial", "unroll", "vector"):
        return None
    if any(x.kind != "serial" or x.until is not None for x in (*around, deep)):
        return None
    sizes = [_trip(x) for x in (deep, high, wide)]
    if None in sizes or not (sizes[0] or 0) <= MATRIX_WORDS or not (sizes[1] or 0) >= LEAST_ROWS:
        return None
    depth, rows, columns = (n or 0 for n in sizes)
    blocks = 1 if over is None else 0 if over.kind != "unroll" else _trip(over) or 0
    if not depth or not columns or not blocks or _registers(blocks, rows, columns) is None:
        return None
    first = {x.var: x.lo for x in (deep, high, wide, *([over] if over else []))}
    block = over.var if over else None
    sums = _matrix(inner.array, inner.index, (block, high.var, wide.var), deep.var, first)
    if sums is None or any(x.var in variables(e) for x in around for e in inner.index):
        return None
    for swapped in (False, True):
        a, b = dot.args[::-1] if swapped else dot.args
        if isinstance(a, Load) and isinstance(b, Load):
            left = _matrix(a.array, a.index, (block, high.var, deep.var), wide.var, first)
            right = _matrix(b.array, b.index, (None, deep.var, wide.var), high.var, first)
            if left is not None and right is not None and tile.name not in (a.array, b.array):
                if any(block in variables(e) for e in b.index if block):
                    continue
                return _Nest(tuple(around), blocks, rows, depth, columns, sums, left, right, dot.fn, swapped)
    return None


def _trip(loop: For) -> int | None:
    limit = full(loop)
    return None if limit is None or limit.conditions or loop.step != 1 else limit.trip


def _matrix(
    array: str, index: tuple[Expr, ...], moving: tuple[str | None, str, str], still: str, first: dict[str, Expr]
) -> _Matrix | None:
    """What an access is whose blocks, rows, and words in a row these variables move; None if `still` moves it, too."""
    block, row, word = moving
    step, far = [], []
    for place, e in enumerate(index):
        form = linear(e)
        if any(not isinstance(a, Var) and {block, row, word, still} & variables(a) for a, _ in form.terms):
            return None
        along = form.coefficient(Var(word))
        if form.coefficient(Var(still)) or along != (place == len(index) - 1):
            return None
        step.append(form.coefficient(Var(row)))
        far.append(form.coefficient(Var(block)) if block else 0)
    if not index or not any(step):
        return None
    return _Matrix(array, tuple(rebuild(linear(substitute(e, first))) for e in index), tuple(step), tuple(far))


# ---- registers ---------------------------------------------------------------------------------


def _pieces(size: int, most: int) -> list[tuple[int, int]]:
    """Where the parts of a dimension begin, and their sizes."""
    return [(k, min(most, size - k)) for k in range(0, size, most)]


@dataclass(frozen=True)
class _Registers:
    """Which register has which part: `sums[i][j]`; `kept` those of the operand whose parts stay for a step of the
    reduction, and by size the one for `streamed` parts of the other."""

    sums: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]
    streamed: dict[int, int]
    keeps_rows: bool


def _column_pieces(columns: int) -> list[tuple[int, int, int]]:
    """The same of columns, which have one block."""
    return [(0, start, size) for start, size in _pieces(columns, MATRIX_WORDS)]


def _row_pieces(blocks: int, rows: int) -> list[tuple[int, int, int]]:
    """Block, first row and number of rows of each part."""
    return [(b, start, size) for b in range(blocks) for start, size in _pieces(rows, MATRIX_ROWS)]


def _registers(blocks: int, rows: int, columns: int) -> _Registers | None:
    """The registers of a tile; None where there are too few.

    Parts of the operand that has fewer are kept, those of the other pass through one register, or two if the last part
    is smaller."""
    high, wide = _row_pieces(blocks, rows), _column_pieces(columns)
    count = len(high) * len(wide)
    keeps_rows = len(high) < len(wide)
    kept, others = (high, wide) if keeps_rows else (wide, high)
    sizes = list(dict.fromkeys(n for *_, n in others))
    if count + len(kept) + len(sizes) > MATRIX_REGISTERS:
        return None
    sums = tuple(tuple(range(i * len(wide), (i + 1) * len(wide))) for i in range(len(high)))
    after = count + len(kept)
    return _Registers(sums, tuple(range(count, after)), {n: after + k for k, n in enumerate(sizes)}, keeps_rows)


def _multiplied(n: _Nest) -> Stmt:
    """The nest in matrix registers."""
    found = _registers(n.blocks, n.rows, n.columns)
    assert found is not None
    high, wide = _row_pieces(n.blocks, n.rows), _column_pieces(n.columns)
    shapes = [(0, 0)] * MATRIX_REGISTERS
    first, last = [], []
    for (b, i, rows), registers in zip(high, found.sums, strict=True):
        for (_, j, words), k in zip(wide, registers, strict=True):
            shapes[k] = rows, words
            first.append(MatrixMove(k, n.tile.array, n.tile.part(b, i, j), n.tile.step))
            last.append(replace(first[-1], store=True))
    steps: list[Stmt] = []

    def load(k: int, part: tuple[int, int, int], is_row: bool) -> None:
        b, start, size = part
        matrix, place = (n.left, n.left.part(b, start, 0)) if is_row else (n.right, n.right.part(0, 0, start))
        shapes[k] = (size, n.depth) if is_row else (n.depth, size)
        steps.append(MatrixMove(k, matrix.array, place, matrix.step))

    kept, others = (high, wide) if found.keeps_rows else (wide, high)
    for k, part in zip(found.kept, kept, strict=True):
        load(k, part, found.keeps_rows)
    for o, part in enumerate(others):
        own = found.streamed[part[-1]]
        load(own, part, not found.keeps_rows)
        for a, k in enumerate(found.kept):
            acc, left, right = (found.sums[a][o], k, own) if found.keeps_rows else (found.sums[o][a], own, k)
            steps.append(MatrixProduct(acc, left, right, n.intrinsic, n.swapped))
    body: Stmt = Block(tuple(steps))
    for loop in reversed(n.loops):
        body = replace(loop, body=body)
    return Block((MatrixShapes(tuple(shapes)), Block(tuple(first)), body, *last, MatrixShapes(())))


# ---- shapes, once where they are the same ------------------------------------------------------


def _configured_once(stmt: Stmt) -> Stmt:
    """Shapes said where a thread begins, if they are the same for all that it does: to say them takes longer than a
    product."""
    own = dict.fromkeys(s for s in _of_thread(stmt) if isinstance(s, MatrixShapes) and s.shapes)
    once = next(iter(own)) if len(own) == 1 else None
    inner = _threads(stmt, once)
    return inner if once is None else Block((once, inner, MatrixShapes(())))


def _of_thread(stmt: Stmt) -> Iterator[Stmt]:
    """The statements that the thread itself runs."""
    yield stmt
    for b in stmt.bodies() if not _starts_threads(stmt) else ():
        yield from _of_thread(b)


def _starts_threads(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == "parallel"


def _threads(stmt: Stmt, said: MatrixShapes | None) -> Stmt:
    """Without the shapes that are `said`; what other threads run says its own."""
    if isinstance(stmt, For) and _starts_threads(stmt):
        return replace(stmt, body=_configured_once(stmt.body))
    if isinstance(stmt, Block) and said is not None:
        stmt = Block(tuple(s for s in stmt.stmts if not isinstance(s, MatrixShapes)))
    return over_bodies(stmt, _threads, said)
