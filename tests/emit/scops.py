"""Hand-built Scops for the tests of `emit` (no front end needed)."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any

import islpy as isl

from polyc.poly.dtypes import DType, f32
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.target import Target
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Promote, Sequence

TARGET = Target("test", "x86_64", "generic", "+avx2,+fma", 256, 16, 32768, 524288, 1 << 22, 64, 2, 2)


def v(name: str) -> Var:
    return Var(name)


def c(value: Any, dtype: DType = f32) -> Const:
    return Const(value, dtype)


def op(o: str, a: Expr, b: Expr) -> Binary:
    return Binary(o, a, b, a.dtype)


def member(name: str, kind: Any = "serial", factor: int | None = None, **schedule: str) -> Member:
    """`member("i", S="[N] -> { S[i, j] -> [(i)] }")`."""
    return Member(name, {s: isl.PwAff(t) for s, t in schedule.items()}, kind, factor)


def loops(stmts: dict[str, Statement], *names: str) -> tuple[Member, ...]:
    """Members of the statements' own iterators."""
    out = []
    for n in names:
        schedule = {}
        for s in stmts.values():
            space = s.domain.get_space()
            ls = isl.LocalSpace.from_space(space)
            schedule[s.name] = isl.PwAff.from_aff(isl.Aff.var_on_domain(ls, isl.dim_type.set, s.iters.index(n)))
        out.append(Member(n, schedule))
    return tuple(out)


def only(stmt: Statement, child: Node) -> Filter:
    return Filter({stmt.name: stmt.domain}, child)


def scop(params: Seq[str], arrays: Seq[Array], stmts: Seq[Statement], tree: Node, context: str | None = None) -> Scop:
    ctx = isl.Set(context or f"[{', '.join(params)}] -> {{ : {' and '.join(f'{p} >= 1' for p in params) or 'true'} }}")
    return Scop(
        "test",
        tuple(params),
        ctx,
        {a.name: a for a in arrays},
        {s.name: s for s in stmts},
        tree,
        tuple(a.name for a in arrays if a.kind in ("in", "inout")),
        tuple(a.name for a in arrays if a.kind == "out"),
    )


def matmul(dtype: DType = f32, sizes: tuple[int, int, int] | None = None) -> Scop:
    """C = A B, symbolic or constant sizes: S0 initialises, S1 updates; program order."""
    if sizes is None:
        params: tuple[str, ...] = ("M", "N", "K")
        m, n, k = (v("M"), v("N"), v("K"))
        head = "[M, N, K]"
        M, N, K = params
    else:
        params, head = (), ""
        m, n, k = (const_int(x) for x in sizes)
        M, N, K = (str(x) for x in sizes)
    arrow = f"{head} -> " if head else ""
    d0 = isl.Set(f"{arrow}{{ S0[i, j] : 0 <= i < {M} and 0 <= j < {N} }}")
    d1 = isl.Set(f"{arrow}{{ S1[i, j, k] : 0 <= i < {M} and 0 <= j < {N} and 0 <= k < {K} }}")
    target = Load("C", (v("i"), v("j")), dtype)
    product = op("*", Load("A", (v("i"), v("k")), dtype), Load("B", (v("k"), v("j")), dtype))
    s0 = Statement("S0", ("i", "j"), d0, "C", (v("i"), v("j")), c(0.0, dtype))
    s1 = Statement("S1", ("i", "j", "k"), d1, "C", (v("i"), v("j")), op("+", target, product), reduction="+")
    arrays = [
        Array("A", dtype, (m, k), "in"),
        Array("B", dtype, (k, n), "in"),
        Array("C", dtype, (m, n), "out"),
    ]
    both = {"S0": s0, "S1": s1}
    inner = Sequence((only(s0, Leaf()), only(s1, Band(loops({"S1": s1}, "k"), Leaf()))))
    return scop(params, arrays, [s0, s1], Band(loops(both, "i", "j"), inner))


def tiled_matmul(
    mr: int = 6, nr: int = 16, lanes: int = 8, kc: int = 0, dtype: DType = f32, sizes: Any = None, pack: bool = False
) -> tuple[Scop, Node]:
    """The register-tiled schedule of `matmul`: i.out, j.out, C in registers around k."""
    s = matmul(dtype, sizes)
    params = "[M, N, K] -> " if sizes is None else ""

    def sched(text: str, *names: str) -> dict[str, str]:
        iters = {"S0": "i, j", "S1": "i, j, k"}
        return {n: f"{params}{{ {n}[{iters[n]}] -> [({text})] }}" for n in names}

    io = member("i.out", **sched(f"floor(i/{mr})", "S0", "S1"))
    jo = member("j.out", **sched(f"floor(j/{nr})", "S0", "S1"))
    s0, s1 = s.statements["S0"], s.statements["S1"]
    i0 = member("i.in0", "unroll", **sched(f"i - {mr}*floor(i/{mr})", "S0"))
    j0 = member("j.in0", "vector", lanes, **sched(f"j - {nr}*floor(j/{nr})", "S0"))
    k = member("k", **sched("k", "S1"))
    i1 = member("i.in", "unroll", **sched(f"i - {mr}*floor(i/{mr})", "S1"))
    j1 = member("j.in", "vector", lanes, **sched(f"j - {nr}*floor(j/{nr})", "S1"))
    body = Sequence((only(s0, Band((i0, j0), Leaf())), only(s1, Band((k, i1, j1), Leaf()))))
    inside: Node = Promote("C", "Creg", "register", body, copy_in=False)
    if pack:
        layout = ((1, nr, 0), (0, 1, 0), (1, 1, nr))
        return s, Promote("B", "Bp", "local", Band((io, jo), inside), layout, copy_out=False)
    return s, Band((io, jo), inside)
