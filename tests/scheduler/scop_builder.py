"""Scops for tests, written as loops around assignments, without the front end.

build("p", ["N"], {"A": "N,N"}, [loop("i", "0", "N", [stmt("A[i,i] = A[i,i] + 1.0")])])
"""

from __future__ import annotations

import ast
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import islpy as isl

from polyc.poly.dtypes import f64, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, Var
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Sequence, loop_dim


@dataclass
class Loop:
    name: str
    lo: str
    hi: str
    body: list


@dataclass
class Stmt:
    text: str
    reduction: str | None = None
    where: str | None = None


loop, stmt = Loop, Stmt
_OPS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}


def expr(node: ast.expr, index: bool) -> Expr:
    """A Python expression; inside subscripts everything is i64, outside f64."""
    dtype = i64 if index else f64
    match node:
        case ast.Constant(value):
            return Const(value if index else float(value), dtype)
        case ast.Name(name):
            return Var(name)
        case ast.UnaryOp(ast.USub(), a):
            return Unary("neg", expr(a, index), dtype)
        case ast.BinOp(a, op, b):
            return Binary(_OPS[type(op)], expr(a, index), expr(b, index), dtype)
        case ast.Subscript(ast.Name(array), sub):
            parts = sub.elts if isinstance(sub, ast.Tuple) else [sub]
            return Load(array, tuple(expr(p, True) for p in parts), f64)
    raise AssertionError(ast.dump(node))


@dataclass
class _Builder:
    params: list[str]
    statements: dict[str, Statement] = field(default_factory=dict)

    def domain(self, name: str, nest: list[Loop], where: str | None) -> isl.Set:
        bounds = [f"({x.lo}) <= {x.name} < ({x.hi})" for x in nest] + ([where] if where else [])
        dims = ", ".join(x.name for x in nest)
        return isl.Set(f"[{', '.join(self.params)}] -> {{ {name}[{dims}] : {' and '.join(bounds) or 'true'} }}")

    def node(self, items: list, nest: list[Loop]) -> tuple[Node, list[str]]:
        filters, names = [], []
        for item in items:
            if isinstance(item, Loop):
                below, inside = self.node(item.body, [*nest, item])
                doms = {s: self.statements[s].domain for s in inside}
                member = Member(item.name, {s: loop_dim(d, len(nest)) for s, d in doms.items()})
                if isinstance(below, Band):
                    below = Band((member, *below.members), below.child)
                else:
                    below = Band((member,), below)
            else:
                inside, below = [self.statement(item, nest)], Leaf()
            filters.append(Filter({s: self.statements[s].domain for s in inside}, below))
            names.extend(inside)
        return (filters[0].child if len(filters) == 1 else Sequence(tuple(filters))), names

    def statement(self, item: Stmt, nest: list[Loop]) -> str:
        name = f"S{len(self.statements)}"
        tree = ast.parse(item.text).body[0]
        assert isinstance(tree, ast.Assign)
        target = expr(tree.targets[0], False)
        assert isinstance(target, Load)
        self.statements[name] = Statement(
            name, tuple(x.name for x in nest), self.domain(name, nest, item.where), target.array, target.index,
            expr(tree.value, False), reduction=item.reduction,
        )  # fmt: skip
        return name


def build(name: str, params: Seq[str], arrays: dict[str, str], body: list, local: Seq[str] = (), lo: int = 1) -> Scop:
    """`arrays`: name -> comma-separated sizes; every parameter is at least `lo`."""
    b = _Builder(list(params))
    tree, _ = b.node(body, [])
    made = {
        a: Array(a, f64, tuple(expr(ast.parse(x, mode="eval").body, True) for x in shape.split(",") if x.strip()),
                 "local" if a in local else "inout")
        for a, shape in arrays.items()
    }  # fmt: skip
    limits = " and ".join(f"{p} >= {lo}" for p in params) or "true"
    context = isl.Set(f"[{', '.join(params)}] -> {{ : {limits} }}")
    args = tuple(a for a in made if a not in local)
    return Scop(name, tuple(params), context, made, b.statements, tree, args, ())


def matmul(sizes: Seq[str] = ("M", "N", "K"), split_init: bool = False) -> Scop:
    """`C = A @ B`, initialised in the nest or in one of its own."""
    m, n, k = sizes
    update = loop("k", "0", k, [stmt("C[i,j] = C[i,j] + A[i,k] * B[k,j]", "+")])
    init = stmt("C[i,j] = 0.0")
    if split_init:
        nests = [
            loop("i0", "0", m, [loop("j0", "0", n, [stmt("C[i0,j0] = 0.0")])]),
            loop("i", "0", m, [loop("j", "0", n, [update])]),
        ]
    else:
        nests = [loop("i", "0", m, [loop("j", "0", n, [init, update])])]
    params = [s for s in sizes if not s.isdigit()]
    return build("matmul", params, {"A": f"{m},{k}", "B": f"{k},{n}", "C": f"{m},{n}"}, nests)


def lu() -> Scop:
    return build("lu", ["N"], {"A": "N,N"}, [
        loop("k", "0", "N", [
            loop("i", "k + 1", "N", [stmt("A[i,k] = A[i,k] / A[k,k]")]),
            loop("i_1", "k + 1", "N", [loop("j", "k + 1", "N", [stmt("A[i_1,j] = A[i_1,j] - A[i_1,k] * A[k,j]")])]),
        ]),
    ])  # fmt: skip


def jacobi() -> Scop:
    return build("jacobi", ["T", "N"], {"A": "N", "B": "N"}, [
        loop("t", "0", "T", [
            loop("i", "1", "N - 1", [stmt("B[i] = (A[i - 1] + A[i] + A[i + 1]) / 3.0")]),
            loop("j", "1", "N - 1", [stmt("A[j] = (B[j - 1] + B[j] + B[j + 1]) / 3.0")]),
        ]),
    ], lo=4)  # fmt: skip


def seidel() -> Scop:
    return build("seidel", ["T", "N"], {"A": "N"}, [
        loop("t", "0", "T", [loop("i", "1", "N - 1", [stmt("A[i] = A[i - 1] + A[i] + A[i + 1]")])]),
    ], lo=4)  # fmt: skip


def rowsum() -> Scop:
    """Local scalar `s`, expanded over `i`."""
    return build("rowsum", ["N", "M"], {"A": "N,M", "y": "N", "s": "N"}, [
        loop("i", "0", "N", [
            stmt("s[i] = 0.0"),
            loop("j", "0", "M", [stmt("s[i] = s[i] + A[i,j]", "+")]),
            stmt("y[i] = s[i]"),
        ]),
    ], local=["s"])  # fmt: skip


def chain() -> Scop:
    """Three pointwise nests through local intermediates."""
    return build("chain", ["N", "M"], {"A": "N,M", "b": "M", "C": "N,M", "t": "N,M", "u": "N,M"}, [
        loop("i", "0", "N", [loop("j", "0", "M", [stmt("t[i,j] = A[i,j] + b[j]")])]),
        loop("i_1", "0", "N", [loop("j_1", "0", "M", [stmt("u[i_1,j_1] = t[i_1,j_1] * t[i_1,j_1]")])]),
        loop("i_2", "0", "N", [loop("j_2", "0", "M", [stmt("C[i_2,j_2] = u[i_2,j_2] + A[i_2,j_2]")])]),
    ], local=["t", "u"])  # fmt: skip
