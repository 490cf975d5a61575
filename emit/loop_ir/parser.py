"""Loop IR from the text that `polyc.emit.loop_ir.printer.exact_text` writes.

Statements are read line by line, by their indentation; an expression is one of Python's grammar (`ast.parse`, nothing
is evaluated), and its types follow from the declarations in scope. Blocks come back flat: `parse(exact_text(f))` is
`flat(f)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, NoReturn

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
from polyc.emit.loop_ir.verify import verify
from polyc.poly.dtypes import BY_NAME, DType, bool_, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import COMPARISONS, Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from polyc.poly.intrinsics import TABLE
from polyc.poly.records import dataclass

_BINARY: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
_SAME_BITS = {"i32": "f32", "f32": "i32", "i64": "f64", "f64": "i64"}


def parse(text: str) -> Function:
    """The function that `exact_text` has written.

    Raises:
        BuildError: the text is none, with its line and what is wrong; or the function breaks a rule of the loop IR.
    """
    lines = [_Line(n, raw) for n, raw in enumerate(text.splitlines(), 1) if raw.strip()]
    if not lines:
        raise BuildError("loop IR: the text is empty")
    reader = _Reader(lines)
    try:
        function = reader.function()
    except _Wrong as error:
        raise BuildError(f"loop IR, line {reader.line.number}: {error}: {reader.line.text}") from None
    except RecursionError:
        raise BuildError(f"loop IR, line {reader.line.number}: nested too deeply") from None
    verify(function, "reading it")
    return function


def flat(stmt: Stmt) -> Stmt:
    """The same without blocks in blocks, and without blocks of one statement."""
    if isinstance(stmt, Block):
        parts = [flat(s) for s in stmt.stmts]
        inner = tuple(x for p in parts for x in (p.stmts if isinstance(p, Block) else (p,)))
        return inner[0] if len(inner) == 1 else Block(inner)
    if isinstance(stmt, (For, Let, Alloc, Launch)):
        return replace(stmt, body=flat(stmt.body))
    if isinstance(stmt, If):
        return replace(stmt, then=flat(stmt.then), orelse=None if stmt.orelse is None else flat(stmt.orelse))
    return stmt


class _Wrong(Exception):
    """What is wrong with the present line."""


@dataclass(frozen=True)
class _Line:
    number: int
    raw: str

    @property
    def text(self) -> str:
        """Without the comment behind it."""
        return self.raw.strip().split("  # ")[0]

    @property
    def marks(self) -> str:
        """The comment behind it."""
        return self.raw.strip().partition("  # ")[2]

    @property
    def depth(self) -> int:
        return (len(self.raw) - len(self.raw.lstrip(" "))) // 4


@dataclass(frozen=True)
class _Scope:
    """Variables and buffers that are declared."""

    variables: Mapping[str, Var] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)

    def variable(self, name: str, dtype: DType = i64, count: int = 1) -> _Scope:
        return replace(self, variables={**self.variables, name: Var(name, dtype, count)})

    def buffer(self, made: Buffer) -> _Scope:
        return replace(self, buffers={**self.buffers, made.name: made})

    def dtype(self, array: str) -> DType:
        if array not in self.buffers:
            raise _Wrong(f"no buffer '{array}' is declared")
        return self.buffers[array].dtype


class _Reader:
    """The statements, from the lines one after the other."""

    def __init__(self, lines: list[_Line]) -> None:
        self.lines, self.at = lines, 0

    @property
    def line(self) -> _Line:
        """The line that is read, at the end the last one."""
        return self.lines[min(self.at, len(self.lines) - 1)]

    def function(self) -> Function:
        head = self._match(r"def (\w+)\((.*)\):", self.line.text)
        marks, scope, params, buffers = _marks(self.line.marks), _Scope(), [], []
        for argument in _split(head[2], ","):
            name, _, kind = argument.partition(": ")
            if kind == "i64":
                params.append(name)
                scope = scope.variable(name)
                continue
            made = self._buffer(name, kind.removeprefix("const "), "param", not kind.startswith("const "), scope)
            buffers.append(made)
            scope = scope.buffer(made)
        self.at += 1
        body = self._block(1, scope)
        if self.at < len(self.lines):
            raise _Wrong("nothing may come after the function")
        fma, fast = (marks.get(k, d) == "True" for k, d in (("fma", "True"), ("fast_math", "False")))
        return Function(head[1], tuple(buffers), tuple(params), body, fma, fast)

    def _buffer(self, name: str, kind: str, space: Any, writable: bool, scope: _Scope) -> Buffer:
        found = self._match(r"(\w+)\[(.*)\](?: align (\d+))?", kind)
        shape = tuple(_expr(e, scope) for e in _split(found[2], ","))
        return Buffer(name, _dtype(found[1]), shape, space, writable, int(found[3] or 64))

    def _block(self, depth: int, scope: _Scope, until: str = "") -> Stmt:
        """Statements of this depth; up to the line `end until`, if that is given."""
        stmts: list[Stmt] = []
        while self.at < len(self.lines) and self.line.depth >= depth:
            if self.line.depth > depth:
                raise _Wrong("this line is indented too far")
            text = self.line.text
            if ended := re.fullmatch(r"end (\w+)", text):
                if ended[1] == until:
                    self.at += 1
                return _joined(stmts)
            if text == "else:":
                break
            if text == "pass":
                self.at += 1
                continue
            stmts.append(self._statement(text, depth, scope))
        return _joined(stmts)

    def _inside(self, depth: int, scope: _Scope) -> Stmt:
        """The lines under a head, which is the present line."""
        self.at += 1
        if self.at >= len(self.lines) or self.line.depth <= depth:
            raise _Wrong("nothing is inside: write 'pass'")
        return self._block(depth + 1, scope)

    def _statement(self, text: str, depth: int, scope: _Scope) -> Stmt:
        if found := re.fullmatch(r"for (\w+) in range\((.*?)\)(?: until (.*))?:", text):
            return self._loop(found, depth, scope)
        if found := re.fullmatch(r"if (.*):", text):
            cond = _expr(found[1], scope)
            then = self._inside(depth, scope)
            more = self.at < len(self.lines) and self.line.depth == depth and self.line.text == "else:"
            return If(cond, then, self._inside(depth, scope) if more else None)
        if found := re.fullmatch(r"launch (\w+)\(blocks (.*); threads (.*)\):", text):
            return self._launch(found, depth, scope)
        if found := re.fullmatch(r"(\w+): ([a-z]+\d*_?)(?:x(\d+))? = (.*)", text):
            name, dtype, count = found[1], _dtype(found[2]), int(found[3] or 1)
            value = _expr(found[4], scope)
            if (value.dtype, value.lanes) != (dtype, count):
                raise _Wrong(f"'{name}' is declared as {dtype} of {count} lanes, its value is {value.dtype}")
            self.at += 1
            return Let(name, value, self._block(depth, scope.variable(name, dtype, count), name))
        if found := re.fullmatch(r"(\w+) = alloc_(\w+)\((.*)\)", text):
            writable = _marks(self.line.marks).get("writable", "True") == "True"
            made = self._buffer(found[1], found[3], found[2], writable, scope)
            self.at += 1
            return Alloc(made, self._block(depth, scope.buffer(made), made.name))
        made_of = self._simple(text, scope)
        self.at += 1
        return made_of

    def _loop(self, found: re.Match[str], depth: int, scope: _Scope) -> For:
        lo, hi, *step = _split(found[2], ",")
        words = self.line.marks.split()
        loop = next((w[5:] for w in words if w.startswith("loop=")), "")
        words = [w for w in words if not w.startswith("loop=")]
        factor = int(words.pop()) if words and words[-1].isdigit() else None
        bounds = _expr(lo, scope), _expr(hi, scope)
        until = None if found[3] is None else _expr(found[3], scope)
        body = self._inside(depth, scope.variable(found[1]))
        kind: Any = words[0] if words else "serial"
        return For(found[1], *bounds, int(step[0]) if step else 1, body, kind, factor, loop, until)

    def _launch(self, found: re.Match[str], depth: int, scope: _Scope) -> Launch:
        def axes(text: str) -> list[tuple[str, str]]:
            return [(name, size) for name, _, size in (part.partition(" < ") for part in _split(text, ","))]

        grid = tuple((name, _expr(size, scope)) for name, size in axes(found[2]))
        threads = tuple((name, int(size)) for name, size in axes(found[3]))
        given, narrow, inner = [], False, scope
        for name, _ in (*grid, *threads):
            inner = inner.variable(name)
        while self.lines[self.at + 1 :] and (text := self.lines[self.at + 1].text).startswith(("given ", "narrow")):
            given += [_expr(text[6:], scope)] if text.startswith("given ") else []
            narrow = narrow or text == "narrow"
            self.at += 1
        return Launch(found[1], grid, threads, self._inside(depth, inner), tuple(given), narrow)

    def _simple(self, text: str, scope: _Scope) -> Stmt:
        """A statement of one line."""
        marks = _marks(self.line.marks)
        if text == "barrier":
            return Barrier()
        if found := re.fullmatch(r"barrier after copies(?: but for the last (\d+) groups)?", text):
            return Barrier(True, int(found[1] or 0))
        if text == "end of a group of copies":
            return EndCopies(int(marks["ahead"]))
        if found := re.fullmatch(r"warp (\S+) (\w+\[.*\])(?: among (\d+))?", text):
            array, index = _access(found[2], scope)
            return WarpReduce(found[1], array, index, scope.dtype(array), int(found[3] or 32))
        if found := re.fullmatch(r"matrices (.*)", text):
            shapes = re.findall(r"(\d+)x(\d+)", found[1])
            return MatrixShapes(tuple((int(rows), int(words)) for rows, words in shapes))
        if found := re.fullmatch(r"m(\d) = 0", text):
            return MatrixClear(int(found[1]))
        if found := re.fullmatch(r"(?:m(\d) = )?matrix (\w+\[.*\]) by ([^=]*?)(?: = m(\d))?", text):
            array, index = _access(found[2], scope)
            step = tuple(int(n) for n in found[3].split(",") if n != "()")
            return MatrixMove(int(found[1] or found[4]), array, index, step, bool(found[4]))
        if found := re.fullmatch(r"m(\d) \+= (\w+)\(m(\d) @ m(\d)\)( swapped)?", text):
            return MatrixProduct(int(found[1]), int(found[3]), int(found[4]), found[2], bool(found[5]))
        if found := re.fullmatch(r"prefetch (.*)", text):
            return Prefetch(*_access(found[1], scope))
        if found := re.fullmatch(r"(\w+) \+= warp(group)?_product(?:_tf32)?_(\d+)x(\d+)\((.*) @ (.*)\)", text):
            (left, at), (right, there) = _access(found[5], scope), _access(found[6], scope)
            sizes, panels = (int(found[3]), int(found[4])), (found[1], left, at, right, there)
            if found[2]:
                return WarpgroupProduct(*panels, *sizes, scope.dtype(left))
            return WarpProduct(*panels, sizes, scope.dtype(left))
        return self._store(text, marks, scope)

    def _store(self, text: str, marks: Mapping[str, str], scope: _Scope) -> Store:
        target, equals, value = text.removeprefix("async ").partition("] = ")
        if not equals:
            raise _Wrong("this is no statement of the loop IR")
        value, _, mask = value.partition(" where ")
        array, index = _access(target + "]", scope)
        scope.dtype(array)
        return Store(
            array, index, _expr(value, scope), _expr(mask, scope) if mask else None, None, marks.get("reduction"),
            asynchronous=text.startswith("async "),
        )  # fmt: skip

    @staticmethod
    def _match(pattern: str, text: str) -> re.Match[str]:
        found = re.fullmatch(pattern, text)
        if found is None:
            raise _Wrong("this line has not the form that is expected here")
        return found


def _joined(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Block(tuple(stmts))


def _marks(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(", ") if "=" in part)


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators that are in no parentheses."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def _dtype(name: str) -> DType:
    if name not in BY_NAME:
        raise _Wrong(f"there is no type '{name}'")
    return BY_NAME[name]


# ---- expressions ---------------------------------------------------------------------------


def _expr(text: str, scope: _Scope) -> Expr:
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError):
        raise _Wrong(f"'{text}' is no expression") from None
    return _Maker(scope).make(tree)


def _access(text: str, scope: _Scope) -> tuple[str, tuple[Expr, ...]]:
    made = _expr(text, scope)
    if not isinstance(made, (Load, VLoad)):
        raise _Wrong(f"'{text}' is no element of a buffer")
    return made.array, made.index


class _Maker:
    """Expressions of the loop IR from Python's, with types from the scope."""

    def __init__(self, scope: _Scope) -> None:
        self.scope = scope

    def make(self, node: ast.expr) -> Expr:
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, ast.Name):
            if node.id not in self.scope.variables:
                raise _Wrong(f"the name '{node.id}' is not declared")
            return self.scope.variables[node.id]
        if isinstance(node, ast.Subscript):
            return self._load(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.BinOp):
            return self._binary(_BINARY.get(type(node.op), "?"), self.make(node.left), self.make(node.right))
        if isinstance(node, ast.BoolOp):
            made = self.make(node.values[0])
            for value in node.values[1:]:
                made = self._binary(_BINARY[type(node.op)], made, self.make(value))
            return made
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._binary(
                _BINARY.get(type(node.ops[0]), "?"), self.make(node.left), self.make(node.comparators[0])
            )
        if isinstance(node, ast.IfExp):
            a, b = self.make(node.body), self.make(node.orelse)
            return Select(self.make(node.test), a, b, a.dtype)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, node)
        return self._refuse(node)

    def _refuse(self, node: ast.expr) -> NoReturn:
        raise _Wrong(f"'{ast.unparse(node)}' is no expression of the loop IR")

    def _constant(self, value: object) -> Const:
        if isinstance(value, bool):
            return Const(value, bool_)
        if isinstance(value, int):
            return Const(value, i64)
        raise _Wrong(f"the number {value!r} needs a type, as in f32({value!r})")

    def _load(self, node: ast.Subscript) -> Load | VLoad:
        if not isinstance(node.value, ast.Name):
            self._refuse(node)
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        made = tuple(map(self.make, index))
        name, lanes = node.value.id, max([e.lanes for e in made], default=1)
        dtype = self.scope.dtype(name)
        return Load(name, made, dtype) if lanes == 1 else VLoad(name, made, None, lanes, dtype)

    def _unary(self, node: ast.UnaryOp) -> Expr:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            return self._constant(-node.operand.value)  # type: ignore[operator]
        op = {ast.USub: "neg", ast.Not: "not", ast.Invert: "~"}.get(type(node.op))
        if op is None:
            self._refuse(node)
        a = self.make(node.operand)
        return Unary(op, a, a.dtype)

    def _binary(self, op: str, a: Expr, b: Expr) -> Expr:
        return Binary(op, a, b, bool_ if op in COMPARISONS else a.dtype)

    def _call(self, name: str, node: ast.Call) -> Expr:
        forms: Mapping[str, Callable[[ast.Call], Expr]] = {
            "ramp": self._ramp, "splat": self._splat, "hreduce": self._hreduce, "vload": self._vload, "neg": self._neg
        }  # fmt: skip
        if name in forms:
            try:
                return forms[name](node)
            except (IndexError, AttributeError, TypeError):
                self._refuse(node)
        if name in BY_NAME:
            return self._typed(BY_NAME[name], node)
        made = tuple(map(self.make, node.args))
        if name in ("min", "max") and len(made) == 2:
            return self._binary(name, *made)
        if name not in TABLE or not made:
            raise _Wrong(f"there is no function '{name}'")
        same = made[0].dtype
        result = {"bool": bool_, "cast": BY_NAME.get(_SAME_BITS.get(same.name, ""), same)}.get(TABLE[name].result, same)
        return Call(name, made, result)

    def _typed(self, dtype: DType, node: ast.Call) -> Expr:
        """`f32(2.0)` is a number, `f32(x)` a conversion."""
        if len(node.args) != 1:
            self._refuse(node)
        operand = node.args[0]
        negative = isinstance(operand, ast.UnaryOp) and isinstance(operand.op, ast.USub)
        number = operand.operand if negative else operand  # type: ignore[attr-defined]
        value: Any = None
        if isinstance(number, ast.Constant):
            value = number.value
        elif isinstance(number, ast.Name) and number.id in ("inf", "nan") and number.id not in self.scope.variables:
            value = float(number.id)
        if isinstance(value, (bool, int, float)):
            return Const(-value if negative else value, dtype)
        return Cast(self.make(operand), dtype)

    def _ramp(self, node: ast.Call) -> Expr:
        stride, count = (self.make(a) for a in node.args[1:3])
        return Ramp(self.make(node.args[0]), int(stride.value), int(count.value), i64)  # type: ignore[attr-defined]

    def _splat(self, node: ast.Call) -> Expr:
        a = self.make(node.args[0])
        return Broadcast(a, node.args[1].value, a.dtype)  # type: ignore[attr-defined]

    def _hreduce(self, node: ast.Call) -> Expr:
        a = self.make(node.args[1])
        return HReduce(node.args[0].value, a, a.dtype)  # type: ignore[attr-defined]

    def _vload(self, node: ast.Call) -> Expr:
        made = self.make(node.args[0])
        mask = self.make(node.keywords[0].value) if node.keywords else None
        if not isinstance(made, VLoad):
            raise _Wrong("a vload has a vector among its subscripts")
        return replace(made, mask=mask)

    def _neg(self, node: ast.Call) -> Expr:
        a = self.make(node.args[0])
        return Unary("neg", a, a.dtype)
