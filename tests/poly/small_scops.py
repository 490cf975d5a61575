"""Small hand-built Scops, and a builder that makes them short to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from polyc.poly.dtypes import DType, f32, i64
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, Var, const_int
from polyc.poly.scop import Array, DynamicBound, Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, loop_dim
from polyc.poly.tree import Sequence as Seq


def index(text: str) -> Expr:
    """An index expression from Python syntax over names and integers."""
    import ast

    ops = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}

    def go(n: ast.AST) -> Expr:
        if isinstance(n, ast.Constant):
            return const_int(n.value)
        if isinstance(n, ast.Name):
            return Var(n.id)
        if isinstance(n, ast.UnaryOp):
            return Unary("neg", go(n.operand), i64)
        assert isinstance(n, ast.BinOp)
        return Binary(ops[type(n.op)], go(n.left), go(n.right), i64)

    return go(ast.parse(text, mode="eval").body)


def ref(text: str, dtype: DType = f32) -> Load:
    """`ref("A[i, j+1]")`."""
    name, _, rest = text.partition("[")
    subscripts = [t for t in rest.rstrip("]").split(",") if t.strip()]
    return Load(name.strip(), tuple(index(t.strip()) for t in subscripts), dtype)


def add(*terms: Expr) -> Expr:
    """The sum, left to right."""
    out = terms[0]
    for t in terms[1:]:
        out = Binary("+", out, t, out.dtype)
    return out


def mul(a: Expr, b: Expr) -> Expr:
    return Binary("*", a, b, a.dtype)


def zero() -> Const:
    return Const(0.0, f32)


def stmt(
    name: str, domain: str, target: str, value: Expr, params: Sequence[str] = (), reduction: str | None = None,
    predicate: Expr | None = None, dynamic: tuple[DynamicBound, ...] = (),
) -> Statement:  # fmt: skip
    """`stmt("S0", "S0[i] : 0 <= i < N", "A[i]", value, ["N"])`."""
    dom = isl.Set(f"[{', '.join(params)}] -> {{ {domain} }}")
    iters = tuple(dom.get_dim_name(isl.dim_type.set, k) for k in range(dom.dim(isl.dim_type.set)))
    t = ref(target)
    return Statement(name, iters, dom, t.array, t.index, value, predicate, reduction, dynamic)


def band(
    statements: Sequence[Statement], names: Sequence[str], child: Node, signs: Mapping[str, int] | None = None
) -> Band:
    """One loop for each iterator name, shared by the statements (same iterator names)."""
    members = []
    for n in names:
        schedule = {}
        for s in statements:
            pa = loop_dim(s.domain, s.iters.index(n))
            schedule[s.name] = pa.neg() if (signs or {}).get(n) == -1 else pa
        members.append(Member(n, schedule))
    return Band(tuple(members), child)


def seq(*parts: tuple[Sequence[Statement], Node]) -> Seq:
    """Statements and subtree of every child in order."""
    return Seq(tuple(Filter({s.name: s.domain for s in ss}, child) for ss, child in parts))


def scop(
    name: str, params: Sequence[str], arrays: Mapping[str, tuple[str, str]], statements: Sequence[Statement],
    tree: Node, context: str = "",
) -> Scop:  # fmt: skip
    """`arrays[name] = (shape text, kind)`."""
    made = {}
    for n, (shape, kind) in arrays.items():
        sizes = tuple(index(t.strip()) for t in shape.split(",") if t.strip())
        made[n] = Array(n, f32, sizes, kind)
    ps = ", ".join(params)
    cond = context or " and ".join(f"{p} >= 0" for p in params)
    ctx = isl.Set(f"[{ps}] -> {{ : {cond} }}")
    args = tuple(n for n, a in made.items() if a.kind in ("in", "inout"))
    results = tuple(n for n, a in made.items() if a.kind == "out")
    return Scop(name, tuple(params), ctx, made, {s.name: s for s in statements}, tree, args, results)


def matmul() -> Scop:
    """`C[i,j] = 0; for k: C[i,j] += A[i,k] * B[k,j]`."""
    ps = ["M", "N", "K"]
    s0 = stmt("S0", "S0[i, j] : 0 <= i < M and 0 <= j < N", "C[i,j]", zero(), ps)
    s1 = stmt(
        "S1", "S1[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K", "C[i,j]",
        add(ref("C[i,j]"), mul(ref("A[i,k]"), ref("B[k,j]"))), ps, reduction="+",
    )  # fmt: skip
    tree = band([s0, s1], ["i", "j"], seq(([s0], Leaf()), ([s1], band([s1], ["k"], Leaf()))))
    arrays = {"A": ("M,K", "in"), "B": ("K,N", "in"), "C": ("M,N", "out")}
    return scop("matmul", ps, arrays, [s0, s1], tree)


def lu() -> Scop:
    """LU factorisation in place, without pivoting."""
    ps = ["N"]
    s0 = stmt(
        "S0", "S0[k, i] : 0 <= k < N and k < i < N", "A[i,k]",
        Binary("/", ref("A[i,k]"), ref("A[k,k]"), f32), ps,
    )  # fmt: skip
    s1 = stmt(
        "S1", "S1[k, i_1, j] : 0 <= k < N and k < i_1 < N and k < j < N", "A[i_1,j]",
        Binary("-", ref("A[i_1,j]"), mul(ref("A[i_1,k]"), ref("A[k,j]")), f32), ps,
    )  # fmt: skip
    tree = band([s0, s1], ["k"], seq(([s0], band([s0], ["i"], Leaf())), ([s1], band([s1], ["i_1", "j"], Leaf()))))
    return scop("lu", ps, {"A": ("N,N", "inout")}, [s0, s1], tree)


def seidel() -> Scop:
    """Gauss-Seidel sweep in one dimension over time."""
    value = add(ref("A[i-1]"), ref("A[i]"), ref("A[i+1]"))
    s0 = stmt("S0", "S0[t, i] : 0 <= t < T and 1 <= i < N - 1", "A[i]", value, ["T", "N"])
    return scop("seidel", ["T", "N"], {"A": ("N", "inout")}, [s0], band([s0], ["t", "i"], Leaf()))
