"""What running a loop in vector lanes costs, from the subscripts' slopes alone.

Unit: one scalar operation. A contiguous access of L lanes costs as much as a scalar one,
an invariant one is hoisted, everything else is gathered lane by lane and wastes cache lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import islpy as isl

from polyc.poly.binding import linear_form
from polyc.poly.cache import per_scop
from polyc.poly.expr import Binary, Call, Const, Expr, Load, Select, Unary, Var, loads, variables, walk
from polyc.poly.forms.ranges import value_range
from polyc.poly.scop import Scop, Statement
from polyc.poly.target import Target
from polyc.poly.tree import Member
from polyc.scheduler.recognition.contraction import slope

STRIDED, GATHER, SCATTER, REVERSED = 2.0, 2.2, 3.0, 0.3  # per element; one after another: 1
NEAR = 4  # a gather with at most this stride uses most of each cache line
LATENCY = 2.0  # of an operation whose result the next one waits for
DIVISION = 3.0  # times as long for a division or a root
HORIZONTAL = 5.0  # combining the lanes of a reduction
CLOSE = 2  # iterations after which a result is waited for
NEIGHBOURS = 2  # iterations side by side in an aligned tile, as in every vector
PAIRS = ("dot_pairs", "widen_pairs", "dot_bytes", "dot_bf16", "pack_bf16")  # about one instruction each
CALL = 12.0  # scalar operations of an elementary function
SIMPLE = 0.5  # scalar operations of one of arithmetic
LOOP = 0.25  # scalar operations of an iteration's own: counting and jumping
UNKNOWN_EXTENT = 64
GAIN = 0.9  # a vector loop must cost less than this share of the serial one
DISTRIBUTION_GAIN = 0.7  # and what is cut into several nests for it
AROUND_GAIN = 0.7  # and one with loops inside it
IDLE_LANES = 2.0  # times as many iterations of a search in lanes, as all wait for the last one
SHORT = 256  # iterations of inner loops, together, that a vector loop may have around them
EXPANSION_LIMIT = 16384  # bytes of a local array that distribution may grow
REMEMBERED = 1 << 14  # answers about accesses and loop times: more than one program asks for
LEAST_STRIP = 64  # iterations: of fewer, starting loops would take longer than what they gain
MOST_APART = 24  # statements of a loop that is taken apart, which bounds the time to look at them
SHORT_ROWS = 4  # of rows that are this many vectors or fewer, one lane for each row is better
MOST_PLACES = 4  # where subscripts wrap round and a loop is cut: each makes one more copy of what is inside
LEAST_VECTORS = 4  # of iterations, that a loop has for each such place
LONGEST_WRITTEN = 16  # iterations of a loop that is written out: of more, counting is the least part
COPIES = 64  # of each statement of loops that are written out
WRITTEN_WORK = 512.0  # and of scalar operations, stores included: more would leave the instruction cache
OFTEN = 64  # runs of a loop that is written out: what happens less often need not be fast, but takes time to compile
BYTE = 8  # bits


def widest_bits(scop: Scop, stmts: Iterable[str]) -> int:
    """Bits of the widest element type that the statements compute with (at least 8)."""
    widths = _widths(scop)
    floats = max([BYTE, *(widths[name][0] for name in stmts)])
    return floats if floats > BYTE else max([BYTE, *(widths[name][1] for name in stmts)])


def widest_bytes(scop: Scop, stmts: Iterable[str]) -> int:
    """The same in bytes."""
    return widest_bits(scop, stmts) // BYTE


@per_scop
def _widths(scop: Scop) -> dict[str, tuple[int, int]]:
    """Bits of the widest float, and of the widest other element type, of each statement (8 without one)."""
    found = {}
    for s in scop.statements.values():
        types = [e.dtype for e in (s.value, s.target, *loads(s.value))]
        floats, others = ([t.bits for t in types if t.is_float is kind] for kind in (True, False))
        found[s.name] = max(floats, default=BYTE), max(others, default=BYTE)
    return found


def iterator(stmt: Statement, pa: isl.PwAff) -> str | None:
    """The one iterator that a loop's time `+-i + c` follows, None for anything else."""
    position = _followed(pa)
    return None if position is None else stmt.iters[position]


@lru_cache(REMEMBERED)
def _followed(pa: isl.PwAff) -> int | None:
    if pa.n_piece() != 1:
        return None
    aff = pa.get_pieces()[0][1]
    return None if aff.dim(isl.dim_type.div) else _steady(aff)


def mover(stmt: Statement, pa: isl.PwAff) -> str | None:
    """The one iterator that a loop moves by one an iteration: that of `iterator`, or of `i % c` inside its tiles."""
    position = _moved(pa)
    return None if position is None else stmt.iters[position]


@lru_cache(REMEMBERED)
def _moved(pa: isl.PwAff) -> int | None:
    if pa.n_piece() != 1:
        return None
    aff = pa.get_pieces()[0][1]
    position = _steady(aff)
    divs = [aff.get_div(k) for k in range(aff.dim(isl.dim_type.div))]
    alone = all(_only(d, position) for d in divs) if position is not None else False
    return position if alone else None


def _only(aff: isl.Aff, position: int) -> bool:
    """Whether nothing but a dimension of the domain is in a function."""
    kinds = (isl.dim_type.in_, isl.dim_type.div, isl.dim_type.param)
    moving = [
        (kind, k) for kind in kinds for k in range(aff.dim(kind)) if not aff.get_coefficient_val(kind, k).is_zero()
    ]
    return moving == [(isl.dim_type.in_, position)]


def _steady(aff: isl.Aff) -> int | None:
    """The one dimension with a coefficient, which is 1 or -1."""
    moving = [k for k in range(aff.dim(isl.dim_type.in_)) if not aff.get_coefficient_val(isl.dim_type.in_, k).is_zero()]
    if len(moving) != 1 or not aff.get_coefficient_val(isl.dim_type.in_, moving[0]).abs().is_one():  # it may be 1/2
        return None
    return moving[0]


def constant_extent(scop: Scop, member: Member, stmts: Iterable[str]) -> int | None:
    """Iterations of the loop over these statements when known and the same everywhere, else None."""
    low: int | None = None
    high: int | None = None
    for s in stmts:
        domain = scop.statements[s].domain
        values = value_range(member.schedule[s], domain.intersect_params(scop.context) if scop.params else domain)
        if values is None:
            return None
        bottom, top = values
        low = bottom if low is None else min(low, bottom)
        high = top if high is None else max(high, top)
    return None if low is None or high is None else high - low + 1


def uniform(scop: Scop, inner: Member, loop: Member) -> bool:
    """Whether the inner loop's bounds do not move with `loop`."""
    for name, pa in inner.schedule.items():
        stmt = scop.statements[name]
        a, b = iterator(stmt, pa), iterator(stmt, loop.schedule[name])
        if a is None or b is None:
            return False
        x, y = stmt.iters.index(a), stmt.iters.index(b)
        for part in stmt.domain.get_basic_sets():
            for c in part.get_constraints():
                if c.involves_dims(isl.dim_type.set, x, 1) and c.involves_dims(isl.dim_type.set, y, 1):
                    return False
    return True


def operations(expr: Expr) -> float:
    """Scalar operations of an expression, subscripts excluded."""
    if isinstance(expr, (Load, Const, Var)):
        return 0.0
    simple = isinstance(expr, (Binary, Unary, Select)) or (isinstance(expr, Call) and expr.fn in PAIRS)
    own = SIMPLE if simple else CALL if isinstance(expr, Call) else 0.0
    return own + sum(operations(c) for c in expr.children())


@lru_cache(maxsize=4096)
def _asked(exprs: tuple[Expr, ...]) -> tuple[float, tuple[Load, ...]]:
    """Scalar operations of expressions, and their loads, each once."""
    return sum(operations(e) for e in exprs), tuple(dict.fromkeys(load for e in exprs for load in loads(e)))


@lru_cache(REMEMBERED)
def access_cost(load: Load, name: str, lanes: int, write: bool) -> float:
    """Cost per iteration of one access in a loop over `name` run in `lanes` lanes."""
    slopes = [slope(e, name, lanes) for e in load.index]
    indirect = any(_indirect(e, name) for e in load.index)
    if not indirect and all(s == 0 for s in slopes):
        return 0.0
    apart = STRIDED if lanes == 1 else SCATTER if write else GATHER
    if indirect or any(s != 0 for s in slopes[:-1]):
        return apart
    if slopes[-1] == 1:
        return 1.0 / lanes
    if slopes[-1] == -1:
        return max(REVERSED, 1.0 / lanes)
    if slopes[-1] is not None and abs(slopes[-1]) <= NEAR:
        if lanes > 1 and not write and slopes[-1] > 0:  # so many vectors are loaded whole, and shuffled together
            return (2.0 * slopes[-1] - 1.0) / lanes
        return apart / 2
    return apart


def _access_cost(scop: Scop, load: Load, name: str, lanes: int, write: bool) -> float:
    """The same for an array of the program: a scalar that the front end has given a copy for each iteration has no
    rows, it becomes a register."""
    cost, array = access_cost(load, name, lanes, write), scop.arrays[load.array]
    return min(cost, 1.0 / lanes) if array.kind == "local" and 0 < array.expanded == len(array.shape) else cost


def diagonal(scop: Scop, member: Member, stmts: Iterable[str]) -> bool:
    """Whether neighbouring iterations move several subscripts of one access: no vector access has such elements.

    (In panels, `[g // 16, k, g % 16]`, they move the last one alone. Places that data decide are read one by one in any
    loop.)
    """
    for s in (scop.statements[name] for name in stmts):
        it = iterator(s, member.schedule[s.name])
        seen = (s.target, *_asked((s.value, *s.index, *(() if s.predicate is None else (s.predicate,))))[1])
        if it is not None and any(sum(_moves(e, it) for e in load.index) > 1 for load in seen):
            return True
    return False


def _moves(e: Expr, name: str) -> bool:
    """Whether a subscript that no data decide is another one in neighbouring iterations."""
    return slope(e, name, NEIGHBOURS) != 0 and not _indirect(e, name)


def subscripts(s: Statement) -> Iterator[Expr]:
    """Of all accesses of a statement."""
    yield from s.index
    for load in _asked((s.value, *(() if s.predicate is None else (s.predicate,))))[1]:
        yield from load.index


def folds(s: Statement) -> bool:
    """Whether a subscript is affine in pieces: neighbours in a periodic field, edges that count on."""
    return any(isinstance(x, Binary) and x.op in ("%", "//", "min", "max") for e in subscripts(s) for x in walk(e))


def _indirect(e: Expr, name: str) -> bool:
    return any(name in variables(x) for load in loads(e) for x in load.index)


def vector_cost(scop: Scop, member: Member, stmts: Iterable[str], lanes: int, extent: int | None) -> float:
    """Cost per iteration of the statements when `member` is the innermost loop, in `lanes` lanes."""
    total = 0.0
    for name in stmts:
        s = scop.statements[name]
        own, seen = _asked((s.value, *s.index, *(() if s.predicate is None else (s.predicate,))))
        it = mover(s, member.schedule[name])
        total += LOOP / lanes + own / lanes
        if it is None:
            total += len(seen) * GATHER + SCATTER
            continue
        written = _access_cost(scop, s.target, it, lanes, True)
        total += sum(_access_cost(scop, load, it, lanes, False) for load in seen) + written
        if written == 0.0:
            # One chain of updates waits for its own results; lanes are combined at the end.
            total += LATENCY if lanes == 1 else HORIZONTAL / (extent or UNKNOWN_EXTENT)
        elif lanes == 1:
            total += LATENCY * chain(s.target, s.value, it)
    if extent is not None and lanes > 1:
        total *= -(-extent // lanes) * lanes / max(1, extent)
    return total


@lru_cache(REMEMBERED)
def chain(target: Load, value: Expr, name: str) -> float:
    """Operations on the longest way from an element that iterations just before of a loop over `name` have written to
    the one that this iteration writes: what each iteration waits for the one before."""
    if isinstance(value, Load):
        return 0.0
    waiting = (c for c in value.children() if any(_before(target, x, name) for x in _asked((c,))[1]))
    inside = [chain(target, c, name) for c in waiting]
    own = DIVISION if _divides(value) else CALL if isinstance(value, Call) and value.fn not in PAIRS else 1.0
    return own + max(inside) if inside else 0.0


def _divides(e: Expr) -> bool:
    divided = isinstance(e, Binary) and e.op == "/" and e.dtype.is_float
    return divided or (isinstance(e, Call) and e.fn == "sqrt")


def _before(target: Load, read: Load, name: str) -> bool:
    """Whether the read element is that of an iteration before, all other loops being in the same one."""
    if read.array != target.array or read.index == target.index:
        return False
    moved = False
    for a, b in zip(target.index, read.index, strict=True):
        x, y = linear_form(a), linear_form(b)
        if x is None or y is None or x[0] != y[0]:
            return False
        apart = x[1] - y[1] if x[0].get(name, 0) > 0 else y[1] - x[1]
        if apart and (name not in x[0] or not 0 < apart <= CLOSE):
            return False
        moved |= bool(apart)
    return moved


def lanes_for(scop: Scop, stmts: Iterable[str], extent: int | None, target: Target) -> int:
    """The target's lanes, fewer for a short loop (a power of two that still covers it)."""
    lanes = target.lanes(widest_bits(scop, stmts))
    while extent is not None and lanes > 2 and lanes // 2 >= extent:
        lanes //= 2
    return lanes


def work(extents: Mapping[str, int | None], names: Iterable[str]) -> float:
    """Product of extents, unknown ones taken as moderately large."""
    product = 1.0
    for n in names:
        product *= extents[n] or UNKNOWN_EXTENT
    return product
