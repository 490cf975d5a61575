"""isl AST expressions as `polyc.poly.expr` expressions (all i64 or bool)."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyc.poly.dtypes import bool_, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Expr, Select, Unary, const_int

_OP = isl.ast_expr_op_type
_ARITHMETIC = {
    _OP.add: "+",
    _OP.sub: "-",
    _OP.mul: "*",
    _OP.min: "min",
    _OP.max: "max",
    # `div` is exact and `pdiv_*` have dividends >= 0: the floor division of our IR covers all.
    _OP.div: "//",
    _OP.fdiv_q: "//",
    _OP.pdiv_q: "//",
    _OP.pdiv_r: "%",
    _OP.zdiv_r: "%",
}
_COMPARE = {_OP.eq: "==", _OP.le: "<=", _OP.lt: "<", _OP.ge: ">=", _OP.gt: ">"}
_LOGIC = {_OP.and_: "and", _OP.and_then: "and", _OP.or_: "or", _OP.or_else: "or"}


def to_expr(expr: isl.AstExpr, names: Mapping[str, Expr]) -> Expr:
    """Convert; `names` gives the meaning of the iterators and parameters.

    Raises:
        BuildError: an operation that has no meaning as a value (call, access).
    """
    kind = expr.get_type()
    if kind == isl.ast_expr_type.int:
        return const_int(expr.get_val().to_python())
    if kind == isl.ast_expr_type.id:
        name = expr.get_id().get_name()
        if name not in names:
            raise BuildError(f"isl's AST uses the name '{name}', which nothing binds")
        return names[name]
    op = expr.get_op_type()
    args = [to_expr(expr.get_op_arg(i), names) for i in range(expr.get_op_n_arg())]
    if op in _ARITHMETIC:
        return _fold(_ARITHMETIC[op], args, i64)
    if op in _COMPARE:
        return Binary(_COMPARE[op], args[0], args[1], bool_)
    if op in _LOGIC:
        # isl writes a condition that always holds as the number 1
        truths = [Const(bool(a.value), bool_) if isinstance(a, Const) else a for a in args]
        return _fold(_LOGIC[op], truths, bool_)
    if op == _OP.minus:
        return Unary("neg", args[0], i64)
    if op in (_OP.cond, _OP.select):
        return Select(args[0], args[1], args[2], args[1].dtype)
    raise BuildError(f"isl's AST operation {op} is not a value: {expr.to_C_str()}")


def arguments(expr: isl.AstExpr, names: Mapping[str, Expr]) -> tuple[str, tuple[Expr, ...]]:
    """Name and arguments of a call `S(i, j)` or an access `A[i][j]`."""
    args = [expr.get_op_arg(i) for i in range(expr.get_op_n_arg())]
    return args[0].get_id().get_name(), tuple(to_expr(a, names) for a in args[1:])


def _fold(op: str, args: list[Expr], dtype: object) -> Expr:
    out = args[0]
    for a in args[1:]:
        out = Binary(op, out, a, dtype)  # type: ignore[arg-type]
    return out
