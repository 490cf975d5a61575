"""Loop IR as readable text: Python-like, with types, deterministic.

`to_text` is for people. `exact_text` says a little more, so that `polyc.emit.loop_ir.parser` reads the same function
back: names of loops, what is a reduction, alignments, where the scope of a name ends, types of all numbers.
"""

from __future__ import annotations

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
    MatrixClear,
    MatrixMove,
    MatrixProduct,
    MatrixShapes,
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
from polyc.poly.records import dataclass

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
    return _Printer(exact=False).function(fn)


def exact_text(fn: Function) -> str:
    """The function as text that `polyc.emit.loop_ir.parser.parse` reads back."""
    return "".join(line.text + "\n" for line in _Printer(exact=True).function(fn))


def expr_text(e: Expr) -> str:
    """One expression; vectors are `ramp(base, stride, lanes)`, `splat(x, lanes)`, `load(...)`."""
    return _READABLE.expr(e)


class _Printer:
    """`exact`: with all that the parser needs."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        self.lines: list[Line] = []

    # ---- functions and statements ----------------------------------------------------------

    def function(self, fn: Function) -> list[Line]:
        """The lines of `fn`."""
        args = [f"{p}: i64" for p in fn.params]
        args += [f"{b.name}: {'' if b.writable else 'const '}{self.buffer(b)}" for b in fn.buffers]
        marks = {"fma": (fn.fma, True), "fast_math": (fn.fast_math, False)}
        self.lines.append(Line(f"def {fn.name}({', '.join(args)}):{self.marks(**marks)}", None))
        if not self.exact:
            self.lines += [Line(f"    # {note}", None) for note in fn.notes]
        self.stmt(fn.body, 1)
        return self.lines

    def marks(self, **values: tuple[object, object]) -> str:
        """A comment with the values that are not what they usually are (exact text only)."""
        unusual = [f"{name}={value}" for name, (value, usual) in values.items() if value != usual]
        return f"  # {', '.join(unusual)}" if self.exact and unusual else ""

    def buffer(self, b: Buffer) -> str:
        """Type, and in exact text an unusual alignment."""
        align = f" align {b.align}" if self.exact and b.align != 64 else ""
        return f"{b.dtype}[{', '.join(self.expr(e) for e in b.shape)}]{align}"

    def stmt(self, s: Stmt, depth: int) -> None:
        """A statement and those inside it."""
        pad = "    " * depth

        def put(text: str) -> None:
            self.lines.append(Line(pad + text, s))

        if isinstance(s, Block):
            if not s.stmts:
                put("pass")
            for k, child in enumerate(s.stmts):
                self.stmt(child, depth)
                if self.exact and k < len(s.stmts) - 1:
                    for name in _scopes(child):
                        put(f"end {name}")
        elif isinstance(s, For):
            step = f", {s.step}" if s.step != 1 else ""
            until = "" if s.until is None else f" until {self.expr(s.until)}"
            put(f"for {s.var} in range({self.expr(s.lo)}, {self.expr(s.hi)}{step}){until}:{self.kind(s)}")
            self.stmt(s.body, depth + 1)
        elif isinstance(s, If):
            put(f"if {self.expr(s.cond)}:")
            self.stmt(s.then, depth + 1)
            if s.orelse is not None:
                put("else:")
                self.stmt(s.orelse, depth + 1)
        elif isinstance(s, Let):
            lanes = s.value.lanes
            put(f"{s.name}: {s.value.dtype}{f'x{lanes}' if lanes > 1 else ''} = {self.expr(s.value)}")
            self.stmt(s.body, depth)
        elif isinstance(s, Alloc):
            marks = self.marks(writable=(s.buffer.writable, True))
            put(f"{s.buffer.name} = alloc_{s.buffer.space}({self.buffer(s.buffer)}){marks}")
            self.stmt(s.body, depth)
        elif isinstance(s, Launch):
            grid = ", ".join(f"{v} < {self.expr(n)}" for v, n in s.grid)
            put(f"launch {s.name}(blocks {grid}; threads {', '.join(f'{v} < {n}' for v, n in s.threads)}):")
            if s.given and not self.exact:
                put(f"    # given {', '.join(map(self.expr, s.given))}")
            for condition in s.given if self.exact else ():
                put(f"    given {self.expr(condition)}")
            if s.narrow:
                put("    narrow" if self.exact else "    # 32-bit index arithmetic")
            self.stmt(s.body, depth + 1)
        elif isinstance(s, Store):
            where = f" where {self.expr(s.mask)}" if s.mask is not None else ""
            how = "async " if s.asynchronous else ""
            marks = self.marks(reduction=(s.reduction, None))
            put(f"{how}{self.access(s.array, s.index)} = {self.expr(s.value)}{where}{marks}")
        else:
            put(self.device(s))

    def kind(self, s: For) -> str:
        """The comment behind a loop's head."""
        words = [] if s.kind == "serial" else [str(s.kind)]
        words += [] if s.factor is None else [str(s.factor)]
        words += [f"loop={s.loop}"] if self.exact and s.loop else []
        return f"  # {' '.join(words)}" if words else ""

    def device(self, s: Stmt) -> str:
        """Statements without bodies of which most exist in launches only."""
        if isinstance(s, Barrier):
            but = f" but for the last {s.pending} groups" if s.pending else ""
            return f"barrier after copies{but}" if s.copies else "barrier"
        if isinstance(s, EndCopies):
            return f"end of a group of copies{self.marks(ahead=(s.ahead, None))}"
        if isinstance(s, (WarpProduct, WarpgroupProduct)):
            what = f"{self.access(s.left, s.left_index)} @ {self.access(s.right, s.right_index)}"
            if isinstance(s, WarpgroupProduct):
                return f"{s.acc} += warpgroup_product_{s.columns}x{s.steps}({what})"
            kind = "_tf32" if s.dtype.name == "f32" else ""
            return f"{s.acc} += warp_product{kind}_{s.tiles[0]}x{s.tiles[1]}({what})"
        if isinstance(s, WarpReduce):
            return f"warp {s.op} {self.access(s.array, s.index)}{f' among {s.width}' if s.width < 32 else ''}"
        if isinstance(s, MatrixShapes):
            return f"matrices {', '.join(f'{rows}x{words}' for rows, words in s.shapes) or 'end'}"
        if isinstance(s, MatrixClear):
            return f"m{s.register} = 0"
        if isinstance(s, MatrixMove):
            matrix = f"matrix {self.access(s.array, s.index)} by {', '.join(map(str, s.step)) or '()'}"
            return f"{matrix} = m{s.register}" if s.store else f"m{s.register} = {matrix}"
        if isinstance(s, MatrixProduct):
            how = " swapped" if s.swapped else ""
            return f"m{s.acc} += {s.intrinsic}(m{s.left} @ m{s.right}){how}"
        assert isinstance(s, Prefetch), type(s)
        return f"prefetch {self.access(s.array, s.index)}"

    # ---- expressions -----------------------------------------------------------------------

    def access(self, array: str, index: tuple[Expr, ...]) -> str:
        """An element or, with a vector subscript, elements of a buffer."""
        return f"{array}[{', '.join(self.expr(e) for e in index) or ('()' if self.exact else '')}]"

    def expr(self, e: Expr) -> str:
        """Text of an expression."""
        return self.bound(e)[0]

    def bound(self, e: Expr) -> tuple[str, int]:
        """Text and binding strength."""
        if isinstance(e, Const):
            return _const(e)
        if isinstance(e, Var):
            return e.name, _ATOM
        if isinstance(e, Load):
            return self.access(e.array, e.index), _ATOM
        if isinstance(e, VLoad):
            mask = "" if e.mask is None else f", where={self.expr(e.mask)}"
            return f"vload({self.access(e.array, e.index)}{mask})", _ATOM
        if isinstance(e, Ramp):
            return f"ramp({self.expr(e.base)}, {e.stride}, {e.count})", _ATOM
        if isinstance(e, Broadcast):
            return f"splat({self.expr(e.a)}, {e.count})", _ATOM
        if isinstance(e, HReduce):
            return f"hreduce('{e.op}', {self.expr(e.a)})", _ATOM
        if isinstance(e, Call):
            return f"{e.fn}({', '.join(self.expr(a) for a in e.args)})", _ATOM
        if isinstance(e, Cast):
            return f"{e.dtype}({self.operand(e.a)})", _ATOM
        if isinstance(e, Select):
            return f"({self.expr(e.a)} if {self.expr(e.cond)} else {self.expr(e.b)})", _ATOM
        if isinstance(e, Unary):
            if self.exact and e.op == "neg" and isinstance(e.a, Const):
                return f"neg({self.expr(e.a)})", _ATOM  # `-1` is the number
            sign = {"neg": "-", "not": "not ", "~": "~"}[e.op]
            level = 3 if e.op == "not" else _UNARY
            return sign + self.inside(e.a, level), level
        assert isinstance(e, Binary), type(e)
        if e.op in ("min", "max"):
            return f"{e.op}({self.expr(e.a)}, {self.expr(e.b)})", _ATOM
        level = _LEVEL[e.op]
        tight_left = 1 if level == 4 or e.op == "**" else 0
        return f"{self.inside(e.a, level + tight_left)} {e.op} {self.inside(e.b, level + 1)}", level

    def operand(self, e: Expr) -> str:
        """The operand of a cast: `f32(2)` is the number, the cast of one says its type."""
        typed = self.exact and isinstance(e, Const) and e.dtype in (i64, bool_)
        return f"{e.dtype}({self.expr(e)})" if typed else self.expr(e)

    def inside(self, e: Expr, level: int) -> str:
        """In parentheses where it binds less than `level`."""
        text, own = self.bound(e)
        return text if own >= level else f"({text})"


_READABLE = _Printer(exact=False)


def _scopes(s: Stmt) -> tuple[str, ...]:
    """The names whose scopes end with `s`, inner ones first."""
    if isinstance(s, (Let, Alloc)):
        return (*_scopes(s.body), s.name if isinstance(s, Let) else s.buffer.name)
    return _scopes(s.stmts[-1]) if isinstance(s, Block) and s.stmts else ()


def _const(e: Const) -> tuple[str, int]:
    if e.dtype in (i64, bool_):
        return str(e.value), _ATOM if not isinstance(e.value, int) or e.value >= 0 else _UNARY
    if e.dtype.is_float:
        return f"{e.dtype}({float(e.value)!r})", _ATOM
    return f"{e.dtype}({e.value})", _ATOM
