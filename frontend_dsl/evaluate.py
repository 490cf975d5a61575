"""Expressions: Python computes what is known at specialisation, the rest becomes `Sym`s."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from polyc.poly.expr import Const, Expr, Load
from polyc.poly.words import counted

from .annotations import Dim
from .checked_arrays import is_negative_literal
from .errors import DslError
from .frame import Frame, Version, size_value
from .locals import read
from .reads import Path
from .values import (
    PYTHON,
    ArrayValue,
    Sym,
    TypeProblem,
    arithmetic,
    choose,
    compare,
    describe,
    index_expr,
    logical,
    negate,
    truth,
    unary,
)  # fmt: skip

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Eq: "==",
    ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.USub: "-", ast.UAdd: "+",
    ast.Invert: "~",
}  # fmt: skip


def evaluate(frame: Frame, node: ast.expr) -> Any:
    """The value of an expression. Raises `DslError`."""
    value, path = follow(frame, node)
    if path is not None:
        frame.program.reads.add(path, value)
    return value


def follow(frame: Frame, node: ast.expr) -> tuple[Any, Path | None]:
    """The value of an expression, and the way to it when it lies outside (not recorded as read yet)."""
    handler = _HANDLERS.get(type(node))
    if handler is None:
        what, hint = _REFUSED.get(type(node), (type(node).__name__, ""))
        raise frame.error(node, f"{what} is not part of the language", hint)
    try:
        if type(node) in _PATHED:
            value, path = handler(frame, node)
        else:
            value, path = handler(frame, node), None
        found = settled(frame, value, node)
    except TypeProblem as problem:
        raise frame.error(node, *problem.args) from None
    if path is not None and found is not value:  # a size's symbol
        frame.program.reads.add(path, value)
        path = None
    return found, path


def settled(frame: Frame, value: Any, node: Any) -> Any:
    """Sizes, scalar arguments and local scalars as values."""
    if isinstance(value, Dim):
        return frame.size(value, node)
    if isinstance(value, ArrayValue) and value.scalar:
        return Sym(Load(value.name, (), value.dtype, frame.span(node)), False)
    return read(frame, value, node) if isinstance(value, Version) else value


def native(frame: Frame, node: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Let Python compute; its exceptions become `DslError`s at `node`."""
    try:
        return function(*args, **kwargs)
    except (DslError, TypeProblem):
        raise
    except Exception as error:
        text = str(error) or "no message"
        hint = "this is computed by Python when the operator is specialised"
        raise frame.error(node, f"{type(error).__name__}: {text}", hint) from None


def is_symbolic(value: Any) -> bool:
    """Whether a value, or something in a tuple, list or dict, exists at run time only."""
    if isinstance(value, (tuple, list, set)):
        return any(is_symbolic(v) for v in value)
    if isinstance(value, dict):
        return any(is_symbolic(v) for v in value.values())
    return isinstance(value, (Sym, ArrayValue, Dim))


# ---- operators -----------------------------------------------------------------------------


def _binary(frame: Frame, node: ast.BinOp) -> Any:
    op = OPERATORS.get(type(node.op))
    if op is None:
        raise frame.error(node, "'@' is not part of the language", "write the product as loops")
    return binary(frame, op, evaluate(frame, node.left), evaluate(frame, node.right), node)


def binary(frame: Frame, op: str, a: Any, b: Any, node: Any) -> Any:
    """`a op b` of two values."""
    for value in (a, b):
        if isinstance(value, ArrayValue) and value.rank:
            raise frame.error(node, f"'{op}' on the whole array {value.name}", "write a loop over its elements")
    if isinstance(a, Sym) or isinstance(b, Sym) or isinstance(a, ArrayValue) or isinstance(b, ArrayValue):
        if isinstance(a, (tuple, list)) or isinstance(b, (tuple, list)):
            return native(frame, node, PYTHON[op], a, b)
        return arithmetic(op, a, b)
    return native(frame, node, PYTHON[op], a, b)


def _unary(frame: Frame, node: ast.UnaryOp) -> Any:
    value = evaluate(frame, node.operand)
    if isinstance(node.op, ast.Not):
        if not is_symbolic(value):
            return not value
        t = truth(value)
        return Sym(negate(t.expr), t.weak)
    op = OPERATORS[type(node.op)]
    if isinstance(value, (Sym, ArrayValue)):
        return unary(op, value)
    functions = {"-": lambda x: -x, "+": lambda x: +x, "~": lambda x: ~x}
    return native(frame, node, functions[op], value)


def _boolean(frame: Frame, node: ast.BoolOp) -> Any:
    stop = isinstance(node.op, ast.Or)  # the static value that decides
    parts: list[Any] = []
    value: Any = None
    for operand in node.values:
        if parts and any(isinstance(n, ast.Call) for n in ast.walk(operand)):
            so_far = logical("or" if stop else "and", parts).expr
            value, condition = _where(frame, so_far, not stop, operand, node)
            if condition is not so_far:
                parts = [Sym(condition, False)]
        else:
            value = evaluate(frame, operand)
        if is_symbolic(value):
            parts.append(value)
        elif bool(native(frame, node, bool, value)) == stop:
            if not parts:
                return value
            parts.append(bool(value))
            break
    if not parts:
        return value
    return logical("or" if stop else "and", parts) if len(parts) > 1 else truth(parts[0])


def _comparison(frame: Frame, node: ast.Compare) -> Any:
    left = evaluate(frame, node.left)
    parts = []
    for op, right_node in zip(node.ops, node.comparators):
        right = evaluate(frame, right_node)
        parts.append(_compare_one(frame, node, op, left, right))
        left = right
    dynamic = [p for p in parts if is_symbolic(p)]
    if not all(bool(p) for p in parts if not is_symbolic(p)):
        return False
    if not dynamic:
        return parts[-1]
    return logical("and", dynamic) if len(dynamic) > 1 else dynamic[0]


def _compare_one(frame: Frame, node: ast.Compare, op: ast.cmpop, a: Any, b: Any) -> Any:
    if isinstance(op, (ast.Is, ast.IsNot)):
        return (a is b) == isinstance(op, ast.Is)
    if not is_symbolic(a) and not is_symbolic(b):
        if isinstance(op, (ast.In, ast.NotIn)):
            return native(frame, node, lambda: (a in b) == isinstance(op, ast.In))
        return native(frame, node, PYTHON[OPERATORS[type(op)]], a, b)
    if isinstance(op, (ast.In, ast.NotIn)):
        if not isinstance(b, (tuple, list, range)) or isinstance(a, ArrayValue):
            hint = "only tuples and lists of numbers can be searched: x in (0, 1)"
            raise frame.error(node, f"'in' on {describe(b)}", hint)
        found = logical("or", [False, *(compare("==", a, v) for v in b)])
        return found if isinstance(op, ast.In) else Sym(negate(found.expr), found.weak)
    name = OPERATORS[type(op)]
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        if name not in ("==", "!=") or len(a) != len(b):
            raise frame.error(node, f"'{name}' on two run-time tuples", "compare their elements")
        equal = logical("and", [True, *(compare("==", x, y) for x, y in zip(a, b))])
        return equal if name == "==" else Sym(negate(equal.expr), equal.weak)
    return compare(name, a, b)


def _conditional(frame: Frame, node: ast.IfExp) -> Any:
    condition = evaluate(frame, node.test)
    if not is_symbolic(condition):
        return evaluate(frame, node.body if native(frame, node.test, bool, condition) else node.orelse)
    test = truth(condition).expr
    body, test = _where(frame, test, True, node.body, node.test)
    other, test = _where(frame, test, False, node.orelse, node.test)
    return choose(Sym(test, False), body, other)


def _where(frame: Frame, condition: Expr, holds: bool, node: ast.expr, at: ast.expr) -> tuple[Any, Expr]:
    """The value of an expression that is evaluated only where a condition holds (or does not): what functions called
    in it do is done there only. And the condition, kept if need be."""
    from .statements import guards_of, save_if_needed

    guards, mark, flags = guards_of(frame, condition), frame.builder.mark(), frame.program.flags
    with frame.builder.guarded(guards[0] if holds else guards[1]):
        value = evaluate(frame, node)
    save_if_needed(frame, guards[2], mark, at, used_later=True, flags=flags)
    saved = guards[2].saved if guards[2] is not None else None
    return value, condition if saved is None else saved


# ---- names, attributes, subscripts ---------------------------------------------------------


def _attribute(frame: Frame, node: ast.Attribute) -> tuple[Any, Path | None]:
    base, path = follow(frame, node.value)
    if isinstance(base, ArrayValue):
        if node.attr == "shape":
            return tuple(size_value(extent) for extent in base.shape), None
        if node.attr == "ndim":
            return base.rank, None
        if node.attr == "dtype":
            return base.dtype, None
        hint = "arrays have .shape, .ndim and .dtype; write everything else as loops"
        raise frame.error(node, f"arrays have no attribute {node.attr} in the language", hint)
    if isinstance(base, Sym):
        raise frame.error(
            node, f"a scalar has no attribute {node.attr}", "call a function on it, as in exp(x) or f32(x)"
        )
    value = native(frame, node, getattr, base, node.attr)
    return value, frame.program.reads.attribute(path, base, node.attr)


def _subscript(frame: Frame, node: ast.Subscript) -> tuple[Any, Path | None]:
    base, path = follow(frame, node.value)
    if isinstance(base, ArrayValue):
        index = subscripts(frame, base, node)
        return Sym(Load(base.name, (*base.prefix, *index), base.dtype, frame.span(node)), False), None
    if isinstance(base, Sym):
        if isinstance(base.expr, Load) and isinstance(node.value, ast.Subscript):
            hint = "write all subscripts in one pair of brackets: A[i, j]"
        else:
            hint = "only arrays and tuples have elements"
        raise frame.error(node, "a scalar is subscripted", hint)
    key = evaluate(frame, node.slice)
    if is_symbolic(key):
        for part in key if isinstance(key, tuple) else (key,):
            frame.want_number(part)
        hint = "unroll the loop: 'for k in (0, 1, 2)', or pass the values as an array"
        raise frame.error(node.slice, f"{describe(base)} is subscripted with a run-time value", hint)
    value = native(frame, node, lambda: base[key])
    return value, frame.program.reads.element(path, base, key)


def subscripts(frame: Frame, array: ArrayValue, node: ast.Subscript) -> tuple[Expr, ...]:
    """The subscripts of `array[...]`, one for each axis; negative literals count from the end."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    places: list[ast.expr] = []
    values: list[Any] = []
    for part in parts:
        if isinstance(part, ast.Slice):
            raise frame.error(part, "slices are not part of the language", "write a loop over the index")
        if isinstance(part, ast.Starred):
            many = evaluate(frame, part.value)
            if not isinstance(many, (tuple, list)):
                raise frame.error(part, f"{describe(many)} cannot be unpacked", "only tuples of subscripts can")
            values += many
            places += [part] * len(many)
            continue
        value = evaluate(frame, part)
        if isinstance(value, (tuple, list)):
            if len(parts) > 1:
                raise frame.error(part, "a tuple among other subscripts", "unpack it with a star: A[*i, k]")
            values += value
            places += [part] * len(value)
        else:
            values.append(value)
            places.append(part)
    if len(values) != array.rank:
        axes, given = counted(array.rank, "axis", "axes"), counted(len(values), "subscript")
        raise frame.error(node, f"{array.name} has {axes}, but {given}", _rank_hint(array))
    return tuple(_index(frame, array, n, v, p) for n, (v, p) in enumerate(zip(values, places)))


def _rank_hint(array: ArrayValue) -> str:
    index = ", ".join("ijklmnpqrstuvw"[: array.rank]) if array.rank else "()"
    return f"write {array.name}[{index}]"


def _index(frame: Frame, array: ArrayValue, axis: int, value: Any, place: ast.expr) -> Expr:
    value = settled(frame, value, place)
    try:
        if value is None or value is Ellipsis:
            raise TypeProblem(f"{value} is no subscript", "write one integer for each axis")
        expr = index_expr(value)
    except TypeProblem as problem:
        raise frame.error(place, *problem.args) from None
    if isinstance(expr, Const) and expr.value < 0 and is_negative_literal(place):
        return index_expr(arithmetic("+", size_value(array.shape[axis]), int(expr.value)))
    return expr


# ---- displays and comprehensions -----------------------------------------------------------


def elements(frame: Frame, nodes: list[ast.expr]) -> list[Any]:
    """The values of a display or argument list; stars unpack tuples."""
    out: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            many = evaluate(frame, node.value)
            if isinstance(many, (Sym, ArrayValue)):
                raise frame.error(node, f"{describe(many)} cannot be unpacked", "only tuples and lists can")
            out += [settled(frame, v, node) for v in native(frame, node, list, many)]
        else:
            out.append(evaluate(frame, node))
    return out


def _dict(frame: Frame, node: ast.Dict) -> Any:
    out: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values):
        if key is None:
            out.update(evaluate(frame, value))
        else:
            out[evaluate(frame, key)] = evaluate(frame, value)
    return out


def _text(frame: Frame, node: ast.JoinedStr) -> str:
    parts = []
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            parts.append(str(evaluate(frame, value.value)))
        else:
            parts.append(str(evaluate(frame, value)))
    return "".join(parts)


def _comprehension(frame: Frame, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Any:
    out = [evaluate(frame, node.elt) for _ in _generate(frame, node.generators)]
    return set(out) if isinstance(node, ast.SetComp) else out


def _dict_comprehension(frame: Frame, node: ast.DictComp) -> Any:
    return {evaluate(frame, node.key): evaluate(frame, node.value) for _ in _generate(frame, node.generators)}


def _generate(frame: Frame, generators: list[ast.comprehension]) -> Iterator[None]:
    """Bind the variables of a comprehension, one combination after another."""
    from .loops import known_items
    from .statements import bind_static

    if not generators:
        yield
        return
    first = generators[0]
    outer = dict(frame.env)
    for item in known_items(frame, first.iter):
        bind_static(frame, first.target, item)
        conditions = [evaluate(frame, test) for test in first.ifs]
        if any(is_symbolic(c) for c in conditions):
            raise frame.error(first.ifs[0], "a comprehension's condition is known at run time only", "write a loop")
        if all(conditions):
            yield from _generate(frame, generators[1:])
    frame.env.clear()
    frame.env.update(outer)


def _call(frame: Frame, node: ast.Call) -> Any:
    from .calls import call

    return call(frame, node)


def _lambda(frame: Frame, node: ast.Lambda) -> Any:
    from .inline import define

    return define(frame, node)


def _slice(frame: Frame, node: ast.Slice) -> slice:
    parts = [None if p is None else evaluate(frame, p) for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


_HANDLERS: dict[type[ast.expr], Callable[[Frame, Any], Any]] = {
    ast.Constant: lambda frame, node: node.value,
    ast.Name: lambda frame, node: frame.look_up(node),
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _comparison,
    ast.IfExp: _conditional,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Call: _call,
    ast.Tuple: lambda frame, node: tuple(elements(frame, node.elts)),
    ast.List: lambda frame, node: elements(frame, node.elts),
    ast.Set: lambda frame, node: set(elements(frame, node.elts)),
    ast.Dict: _dict,
    ast.JoinedStr: _text,
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _dict_comprehension,
    ast.Slice: _slice,
    ast.Lambda: _lambda,
}

_PATHED = (ast.Name, ast.Attribute, ast.Subscript)  # their handlers tell the way, too

_REFUSED: dict[type[ast.expr], tuple[str, str]] = {
    ast.NamedExpr: ("':='", "assign in a statement of its own"),
    ast.Await: ("'await'", "operators are ordinary functions"),
    ast.Yield: ("'yield'", "write results into an array made by empty(...) and return it"),
    ast.YieldFrom: ("'yield from'", "write results into an array made by empty(...) and return it"),
    ast.Starred: ("a star here", "stars unpack tuples inside brackets and calls"),
}
