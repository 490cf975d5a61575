"""Joining Scops: the graph's fusion is composition, then scheduling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from poly.affine import set_space
from poly.errors import ScopError
from poly.expr import Expr, Load, Var, rewrite
from poly.scop import Array, DynamicBound, Scop, Statement
from poly.tree import Band, Filter, Member, Node, Promote
from poly.tree import Sequence as SequenceNode


def rename(scop: Scop, names: Mapping[str, str]) -> Scop:
    """`scop` with arrays, statements and iterators renamed (names not in the map stay)."""

    def new(name: str) -> str:
        return names.get(name, name)

    def move(node: Expr) -> Expr:
        if isinstance(node, Load):
            return Load(new(node.array), node.index, node.dtype, node.span)
        if isinstance(node, Var):
            return Var(new(node.name), node.dtype, node.count)
        return node

    def expr(e: Expr) -> Expr:
        return rewrite(e, move)

    statements = {new(n): _statement(s, new, expr) for n, s in scop.statements.items()}
    return replace(
        scop,
        arrays={new(n): replace(a, name=new(n)) for n, a in scop.arrays.items()},
        statements=statements,
        tree=_tree(scop.tree, new, statements),
        args=tuple(map(new, scop.args)),
        results=tuple(map(new, scop.results)),
    )


def _statement(s: Statement, new: Callable[[str], str], expr: Callable[[Expr], Expr]) -> Statement:
    iters = tuple(map(new, s.iters))
    domain = s.domain.set_tuple_name(new(s.name))
    for k, name in enumerate(iters):
        domain = domain.set_dim_name(isl.dim_type.set, k, name)
    return replace(
        s,
        name=new(s.name),
        iters=iters,
        domain=domain,
        array=new(s.array),
        index=tuple(expr(e) for e in s.index),
        value=expr(s.value),
        predicate=None if s.predicate is None else expr(s.predicate),
        dynamic=tuple(DynamicBound(new(d.iter), expr(d.lo), expr(d.hi)) for d in s.dynamic),
    )


def _tree(node: Node, new: Callable[[str], str], statements: Mapping[str, Statement]) -> Node:
    children = tuple(_tree(c, new, statements) for c in node.children())
    if isinstance(node, Band):
        members = tuple(
            Member(
                new(m.name), {new(s): _moved(pa, statements[new(s)]) for s, pa in m.schedule.items()},
                m.kind, m.factor, m.coincident,
            )
            for m in node.members
        )  # fmt: skip
        return Band(members, children[0], node.permutable)
    if isinstance(node, Filter):
        domain = {new(s): _renamed_set(d, statements[new(s)]) for s, d in node.domain.items()}
        return Filter(domain, children[0])
    if isinstance(node, Promote):
        return replace(node, array=new(node.array), buffer=new(node.buffer), child=children[0])
    return node.with_children(children)


def _moved(pa: isl.PwAff, stmt: Statement) -> isl.PwAff:
    m = isl.Map.from_pw_aff(pa).set_tuple_name(isl.dim_type.in_, stmt.name)
    for k, name in enumerate(stmt.iters):
        m = m.set_dim_name(isl.dim_type.in_, k, name)
    return isl.PwMultiAff.from_map(m).get_at(0)


def _renamed_set(s: isl.Set, stmt: Statement) -> isl.Set:
    s = s.set_tuple_name(stmt.name)
    for k, name in enumerate(stmt.iters):
        s = s.set_dim_name(isl.dim_type.set, k, name)
    return s


def compose(
    name: str,
    parts: Sequence[tuple[Scop, Mapping[str, str]]],
    inputs: Iterable[str],
    outputs: Iterable[str],
) -> Scop:
    """Run `parts` one after another as one Scop.

    Each part comes with a map from its argument and result names to shared tensor names.
    `inputs` (in call order) and `outputs` are shared names; a shared tensor that is written
    and is no output becomes `local`. Loops, statements and private locals get unique names.

    Raises:
        ScopError: two parts disagree about a shared tensor's dtype or shape, or an input is
            never declared.
    """
    inputs, outputs = tuple(inputs), tuple(outputs)
    taken: set[str] = {t for _, wiring in parts for t in wiring.values()}
    taken |= {p for scop, _ in parts for p in scop.params}
    renamed = [_unique(scop, wiring, taken) for scop, wiring in parts]
    written = {s.array for scop in renamed for s in scop.statements.values()}
    arrays: dict[str, Array] = {}
    for scop in renamed:
        for a in scop.arrays.values():
            _declare(arrays, a, inputs, outputs, written)
    for t in (*inputs, *outputs):
        if t not in arrays:
            raise ScopError(f"{name}: no part uses the tensor '{t}'")
    ordered = [*inputs, *(t for t in outputs if t not in inputs), *(t for t in arrays if t not in (*inputs, *outputs))]
    params = tuple(dict.fromkeys(p for scop in renamed for p in scop.params))
    statements = {n: _aligned(s, params) for scop in renamed for n, s in scop.statements.items()}
    context = isl.Set.universe(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(params))).params()
    for scop in renamed:
        context = context.intersect(scop.context)
    return Scop(
        name, params, context, {t: arrays[t] for t in ordered}, statements, _in_order(renamed, statements),
        inputs, tuple(t for t in outputs if arrays[t].kind == "out"),
        all(s.reassociate for s in renamed), all(s.fast_math for s in renamed),
        tuple(n for s in renamed for n in s.notes),
    )  # fmt: skip


def _declare(
    arrays: dict[str, Array], a: Array, inputs: tuple[str, ...], outputs: tuple[str, ...], written: set[str]
) -> None:
    if a.name in arrays:
        known = arrays[a.name]
        if (known.dtype, known.shape) != (a.dtype, a.shape):
            raise ScopError(f"tensor '{a.name}' is {known.dtype}{known.shape} here and {a.dtype}{a.shape} there")
        return
    if a.name in inputs:
        kind = "inout" if a.name in written else "in"
    else:
        kind = "out" if a.name in outputs else "local"
    arrays[a.name] = replace(a, kind=kind)  # type: ignore[arg-type]


def _unique(scop: Scop, wiring: Mapping[str, str], taken: set[str]) -> Scop:
    """Wire the shared names and give everything private a name that nobody has."""
    names = dict(wiring)
    private = [n for n in scop.arrays if n not in wiring]
    private += list(scop.statements)
    private += list(dict.fromkeys(i for s in scop.statements.values() for i in s.iters))
    loops = [m.name for n in _bands(scop.tree) for m in n.members]
    private += [n for n in dict.fromkeys(loops) if n not in private]
    for n in private:
        fresh, k = n, 0
        while fresh in taken:
            k += 1
            fresh = f"{n}_{k}"
        taken.add(fresh)
        names[n] = fresh
    return rename(scop, names)


def _bands(node: Node) -> list[Band]:
    here = [node] if isinstance(node, Band) else []
    return here + [b for c in node.children() for b in _bands(c)]


def _aligned(s: Statement, params: tuple[str, ...]) -> Statement:
    return replace(s, domain=s.domain.align_params(set_space(s.name, s.iters, params)))


def _in_order(scops: list[Scop], statements: Mapping[str, Statement]) -> Node:
    """A Sequence over the parts; parts that are sequences themselves are spliced in."""
    filters: list[Filter] = []
    for scop in scops:
        if isinstance(scop.tree, SequenceNode):
            filters.extend(scop.tree.filters)
        else:
            filters.append(Filter({n: statements[n].domain for n in scop.statements}, scop.tree))
    return filters[0].child if len(filters) == 1 else SequenceNode(tuple(filters))
