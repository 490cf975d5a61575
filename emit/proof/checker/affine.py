"""The expressions of a certificate as isl objects."""

from __future__ import annotations

import ast
from typing import Any

import islpy as isl

from .text import Opaque

OUT, SET, PARAM = isl.dim_type.out, isl.dim_type.set, isl.dim_type.param


class Affine:
    """Expressions over sizes and loop variables as isl objects."""

    def __init__(self, sizes: list[str], variables: list[str]) -> None:
        self.space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=variables, params=sizes)

    def number(self, e: ast.expr) -> isl.PwAff:
        """A quasi-affine expression. Raises `Opaque`."""
        if isinstance(e, ast.Constant) and type(e.value) is int:
            return self.constant(e.value)
        if isinstance(e, ast.Name):
            for kind in (SET, PARAM):
                at = self.space.find_dim_by_name(kind, e.id)
                if at >= 0:
                    return isl.PwAff.from_aff(isl.Aff.var_on_domain(isl.LocalSpace.from_space(self.space), kind, at))
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.USub):
            return self.number(e.operand).neg()
        if isinstance(e, ast.BinOp):
            return self.operation(e)
        if isinstance(e, ast.IfExp):
            test = self.condition(e.test)
            yes, no = self.number(e.body).intersect_domain(test), self.number(e.orelse)
            return yes.union_add(no.intersect_domain(test.complement()))
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in ("min", "max"):
            a, b = map(self.number, e.args)
            return a.min(b) if e.func.id == "min" else a.max(b)
        raise Opaque

    def constant(self, number: int) -> isl.PwAff:
        """A number."""
        zero = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(self.space))
        return isl.PwAff.from_aff(zero.set_constant_val(isl.Val(number)))

    def operation(self, e: ast.BinOp) -> isl.PwAff:
        """A sum, difference, product with a constant, or floor division or remainder by one.

        Raises:
            Opaque: it is none of these.
        """
        a, b = self.number(e.left), self.number(e.right)
        if isinstance(e.op, (ast.Add, ast.Sub)):
            return a.add(b) if isinstance(e.op, ast.Add) else a.sub(b)
        if isinstance(e.op, ast.Mult) and (a.is_cst() or b.is_cst()):
            return a.mul(b)
        if isinstance(e.op, (ast.FloorDiv, ast.Mod)) and b.is_cst():
            by = b.max_val()
            return a.mod_val(by) if isinstance(e.op, ast.Mod) else a.scale_down_val(by).floor()
        raise Opaque

    def condition(self, e: ast.expr) -> isl.Set:
        """Where a test of numbers holds. Raises `Opaque`."""
        if isinstance(e, ast.BoolOp):
            first, *rest = map(self.condition, e.values)
            for other in rest:
                first = first.intersect(other) if isinstance(e.op, ast.And) else first.union(other)
            return first
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return self.condition(e.operand).complement()
        if isinstance(e, ast.Compare) and len(e.ops) == 1:
            return self.compared(e.left, type(e.ops[0]), e.comparators[0])
        raise Opaque

    def compared(self, a: ast.expr, op: type, b: ast.expr) -> isl.Set:
        """Where a comparison of two numbers holds. Raises `Opaque`."""
        x, y = self.number(a), self.number(b)
        tests: dict[type, Any] = {
            ast.Eq: x.eq_set, ast.NotEq: x.ne_set, ast.Lt: x.lt_set,
            ast.LtE: x.le_set, ast.Gt: x.gt_set, ast.GtE: x.ge_set,
        }  # fmt: skip
        return tests[op](y)

    def function(self, values: list[ast.expr], name: str) -> isl.Map:
        """`{ [variables] -> name[values] }`."""
        out = isl.Map.from_domain(isl.Set.universe(self.space))
        for v in values:
            out = out.flat_range_product(isl.Map.from_pw_aff(self.number(v)))
        return out.set_tuple_name(OUT, name)
