"""Every operation that isl puts in its ASTs means the same in our expressions."""

from __future__ import annotations

import itertools

import islpy as isl
import numpy as np
import pytest

from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import Buffer, Function, Store
from polyc.emit.lowering.isl_expr import to_expr
from polyc.poly.expr import Expr, Var

NAMES = {n: Var(n) for n in "NMK"}
POINTS = list(itertools.product((-7, -1, 0, 3, 8), (1, 2, 9), (0, 5)))
OPS = isl.ast_expr_op_type


def value(e: Expr, point: tuple[int, ...]) -> int:
    fn = Function("f", (Buffer("Y", e.dtype, (), "param"),), ("N", "M", "K"), Store("Y", (), e))
    out = np.zeros((), e.dtype.np)
    interp.run(fn, {"Y": out}, dict(zip("NMK", point)))
    return int(out[()])


def ops_in(e: isl.AstExpr) -> set[int]:
    if e.get_type() != isl.ast_expr_type.op:
        return set()
    out = {e.get_op_type()}
    for i in range(e.get_op_n_arg()):
        out |= ops_in(e.get_op_arg(i))
    return out


FUNCTIONS = [
    ("[(N + 2*M - 3*K)]", "", {OPS.add, OPS.mul, OPS.sub}),
    ("[(-N)]", "", {OPS.minus}),
    ("[(floor(N/4))]", "", {OPS.fdiv_q}),
    ("[(floor(N/4))]", "N >= 0", {OPS.pdiv_q}),
    ("[(N mod 4)]", "N >= 0", {OPS.pdiv_r}),
    ("[(4*floor((N + 3)/4))]", "", {OPS.fdiv_q}),
    ("[(N/2)]", "N mod 2 = 0", {OPS.div}),
    ("[(N mod 5 + M mod 3)]", "", set()),
    ("[(ceil(N/3) - floor(M/2))]", "", set()),
]


@pytest.mark.parametrize(("text", "domain", "ops"), FUNCTIONS)
def test_functions(text: str, domain: str, ops: set[int]) -> None:
    context = isl.Set(f"[N, M, K] -> {{ : {domain or 'true'} }}")
    pa = isl.PwAff(f"[N, M, K] -> {{ {text} }}").intersect_params(context)
    ast = isl.AstBuild.from_context(context).expr_from_pw_aff(pa)
    assert ops <= ops_in(ast), ast.to_C_str()
    check(ast, isl.Set.from_pw_aff(pa), context)


def check(ast: isl.AstExpr, m: isl.Set, context: isl.Set) -> None:
    e = to_expr(ast, NAMES)
    tried = 0
    for point in POINTS:
        fixed = m.intersect_params(context)
        for name, x in zip("NMK", point):
            position = fixed.find_dim_by_name(isl.dim_type.param, name)
            if position >= 0:
                fixed = fixed.fix_val(isl.dim_type.param, position, isl.Val(x))
        if fixed.is_empty():
            continue
        tried += 1
        wanted = fixed.dim_max_val(0).to_python()
        assert value(e, point) == wanted, (ast.to_C_str(), point)
    assert tried > 3


def test_pieces_are_selected() -> None:
    context = isl.Set("[N, M, K] -> { : }")
    pa = isl.PwAff("[N, M, K] -> { [(N + 5)] : N < M; [(M - K)] : N >= M and K > 2; [(7)] : N >= M and K <= 2 }")
    ast = isl.AstBuild.from_context(context).expr_from_pw_aff(pa)
    assert ops_in(ast) & {OPS.cond, OPS.select}
    check(ast, isl.Set.from_pw_aff(pa), context)


def test_bounds_of_three_arguments() -> None:
    s = isl.Map("[N, M, K] -> { S[i] -> [i] : i < N and i < M and i < K and i >= -M and i >= K - 20 and i >= N - 9 }")
    node = isl.AstBuild.from_context(isl.Set("[N, M, K] -> { : }")).node_from_schedule_map(isl.UnionMap.from_map(s))
    while node.get_type() != isl.ast_node_type.for_:
        node = node.if_get_then_node()
    high, low = node.for_get_cond().get_op_arg(1), node.for_get_init()
    assert {high.get_op_n_arg(), low.get_op_n_arg()} == {3}
    assert high.get_op_type() == OPS.min and low.get_op_type() == OPS.max
    for n, m, k in POINTS:
        env = (n, m, k)
        shift = 1 if node.for_get_cond().get_op_type() == OPS.le else 0
        assert value(to_expr(high, NAMES), env) + shift == min(n, m, k)
        assert value(to_expr(low, NAMES), env) == max(-m, k - 20, n - 9)


CONDITIONS = [
    ("N < M and M <= 3*K", {OPS.and_, OPS.and_then}),
    ("N < M or K > 4", {OPS.or_, OPS.or_else}),
    ("N = 2*M", {OPS.eq}),
    ("N mod 4 = 1 or N = M", set()),
    ("exists e: N = 3*e and M >= e", {OPS.zdiv_r}),
    ("(N - M) mod 3 = 0", {OPS.zdiv_r}),
]


@pytest.mark.parametrize(("text", "ops"), CONDITIONS)
def test_conditions(text: str, ops: set[int]) -> None:
    s = isl.Set(f"[N, M, K] -> {{ : {text} }}")
    ast = isl.AstBuild.from_context(isl.Set("[N, M, K] -> { : }")).expr_from_set(s)
    assert not ops or ops & ops_in(ast), ast.to_C_str()
    e = to_expr(ast, NAMES)
    for point in POINTS:
        fixed = s
        for name, x in zip("NMK", point):
            position = fixed.find_dim_by_name(isl.dim_type.param, name)
            if position >= 0:
                fixed = fixed.fix_val(isl.dim_type.param, position, isl.Val(x))
        assert value(e, point) == (not fixed.is_empty()), (ast.to_C_str(), point)
