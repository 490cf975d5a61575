"""Loop IR as readable text: Python-like, with types, deterministic."""

from __future__ import annotations

from dataclasses import dataclass

from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Block,
    Broadcast,
    Buffer,
    EndCopies,
    For,
    Function,
    HReduce,
    If,
    Launch,
    Let,
    Prefetch,
    Ramp,
    Stmt,
    Store,
    VLoad,
    WarpgroupProduct,
    WarpProduct,
    WarpReduce,
)
from polyc.poly.dtypes import bool_, i64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var

_LEVEL = {
    "or": 1,
    "and": 2,
    "==": 4,
    "!=": 4,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "|": 5,
    "^": 6,
    "&": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "//": 10,
    "%": 10,
    "**": 12,
}
_UNARY = 11
_ATOM = 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text and the statement that it prints (None: the function's head)."""

    text: str
    stmt: Stmt | None


def to_text(fn: Function) -> str:
    """The whole function; ends with a newline."""
    return "".join(line.text + "\n" for line in to_lines(fn))


def to_lines(fn: Function) -> list[Line]:
    """The whole function with its provenance, line by line."""
    args = [f"{p}: i64" for p in fn.params]
    args += [f"{b.name}: {'' if b.writable else 'const '}{_type(b)}" for b in fn.buffers]
    lines = [Line(f"def {fn.name}({', '.join(args)}):", None)]
    lines += [Line(f"    # {note}", None) for note in fn.notes]
    _stmt(fn.body, 1, lines)
    return lines


def _type(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(expr_text(e) for e in buffer.shape)}]"


def _stmt(s: Stmt, depth: int, lines: list[Line]) -> None:
    pad = "    " * depth

    def put(text: str) -> None:
        lines.append(Line(pad + text, s))

    if isinstance(s, Block):
        if not s.stmts:
            put("pass")
        for child in s.stmts:
            _stmt(child, depth, lines)
    elif isinstance(s, For):
        step = f", {s.step}" if s.step != 1 else ""
        mark = "" if s.kind == "serial" else f"  # {s.kind}{'' if s.factor is None else f' {s.factor}'}"
        put(f"for {s.var} in range({expr_text(s.lo)}, {expr_text(s.hi)}{step}):{mark}")
        _stmt(s.body, depth + 1, lines)
    elif isinstance(s, If):
        put(f"if {expr_text(s.cond)}:")
        _stmt(s.then, depth + 1, lines)
        if s.orelse is not None:
            put("else:")
            _stmt(s.orelse, depth + 1, lines)
    elif isinstance(s, Let):
        lanes = s.value.lanes
        put(f"{s.name}: {s.value.dtype}{f'x{lanes}' if lanes > 1 else ''} = {expr_text(s.value)}")
        _stmt(s.body, depth, lines)
    elif isinstance(s, Alloc):
        put(f"{s.buffer.name} = alloc_{s.buffer.space}({_type(s.buffer)})")
        _stmt(s.body, depth, lines)
    elif isinstance(s, Launch):
        grid = ", ".join(f"{v} < {expr_text(n)}" for v, n in s.grid)
        put(f"launch {s.name}(blocks {grid}; threads {', '.join(f'{v} < {n}' for v, n in s.threads)}):")
        if s.given:
            put(f"    # given {', '.join(map(expr_text, s.given))}")
        if s.narrow:
            put("    # 32-bit index arithmetic")
        _stmt(s.body, depth + 1, lines)
    elif isinstance(s, Barrier):
        but = f" but for the last {s.pending} groups" if s.pending else ""
        put(f"barrier after copies{but}" if s.copies else "barrier")
    elif isinstance(s, EndCopies):
        put("end of a group of copies")
    elif isinstance(s, WarpProduct):
        what = f"{_access(s.left, s.left_index)} @ {_access(s.right, s.right_index)}"
        kind = "_tf32" if s.dtype.name == "f32" else ""
        put(f"{s.acc} += warp_product{kind}_{s.tiles[0]}x{s.tiles[1]}({what})")
    elif isinstance(s, WarpgroupProduct):
        what = f"{_access(s.left, s.left_index)} @ {_access(s.right, s.right_index)}"
        put(f"{s.acc} += warpgroup_product_{s.columns}x{s.steps}({what})")
    elif isinstance(s, WarpReduce):
        put(f"warp {s.op} {_access(s.array, s.index)}{f' among {s.width}' if s.width < 32 else ''}")
    elif isinstance(s, Prefetch):
        put(f"prefetch {_access(s.array, s.index)}")
    elif isinstance(s, Store):
        where = f" where {expr_text(s.mask)}" if s.mask is not None else ""
        how = "async " if s.asynchronous else ""
        put(f"{how}{_access(s.array, s.index)} = {expr_text(s.value)}{where}")


def _access(array: str, index: tuple[Expr, ...]) -> str:
    return f"{array}[{', '.join(expr_text(e) for e in index)}]"


def expr_text(e: Expr) -> str:
    """One expression; vectors are `ramp(base, stride, lanes)`, `splat(x, lanes)`, `load(...)`."""
    return _expr(e)[0]


def _expr(e: Expr) -> tuple[str, int]:
    """Text and binding strength."""
    if isinstance(e, Const):
        return _const(e)
    if isinstance(e, Var):
        return e.name, _ATOM
    if isinstance(e, Load):
        return _access(e.array, e.index), _ATOM
    if isinstance(e, VLoad):
        mask = "" if e.mask is None else f", where={expr_text(e.mask)}"
        return f"vload({_access(e.array, e.index)}{mask})", _ATOM
    if isinstance(e, Ramp):
        return f"ramp({expr_text(e.base)}, {e.stride}, {e.count})", _ATOM
    if isinstance(e, Broadcast):
        return f"splat({expr_text(e.a)}, {e.count})", _ATOM
    if isinstance(e, HReduce):
        return f"hreduce('{e.op}', {expr_text(e.a)})", _ATOM
    if isinstance(e, Call):
        return f"{e.fn}({', '.join(expr_text(a) for a in e.args)})", _ATOM
    if isinstance(e, Cast):
        return f"{e.dtype}({expr_text(e.a)})", _ATOM
    if isinstance(e, Select):
        return f"({expr_text(e.a)} if {expr_text(e.cond)} else {expr_text(e.b)})", _ATOM
    if isinstance(e, Unary):
        sign = {"neg": "-", "not": "not ", "~": "~"}[e.op]
        level = 3 if e.op == "not" else _UNARY
        return sign + _inside(e.a, level), level
    assert isinstance(e, Binary), type(e)
    if e.op in ("min", "max"):
        return f"{e.op}({expr_text(e.a)}, {expr_text(e.b)})", _ATOM
    level = _LEVEL[e.op]
    tight_left = 1 if level == 4 or e.op == "**" else 0
    return f"{_inside(e.a, level + tight_left)} {e.op} {_inside(e.b, level + 1)}", level


def _inside(e: Expr, level: int) -> str:
    text, own = _expr(e)
    return text if own >= level else f"({text})"


def _const(e: Const) -> tuple[str, int]:
    if e.dtype in (i64, bool_):
        return str(e.value), _ATOM if not isinstance(e.value, int) or e.value >= 0 else _UNARY
    if e.dtype.is_float:
        return f"{e.dtype}({float(e.value)!r})", _ATOM
    return f"{e.dtype}({e.value})", _ATOM
