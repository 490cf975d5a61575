"""Joining Scops: the graph's fusion is composition, then scheduling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from polyc.poly.errors import ScopError
from polyc.poly.expr import Expr, Load, Var, rewrite
from polyc.poly.expr import walk as walk_expr
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff
from polyc.poly.scop import Array, DynamicBound, Scop, Statement
from polyc.poly.tree import Band, Filter, Member, Node, Promote, loop_names, promotions_below
from polyc.poly.tree import Sequence as SequenceNode


def rename(scop: Scop, names: Mapping[str, str]) -> Scop:
    """`scop` with arrays, statements, iterators and loops renamed at once (others stay).

    Raises:
        ScopError: two things would get one name (two arrays may: they become the same tensor).
    """

    def new(name: str) -> str:
        return names.get(name, name)

    def move(node: Expr) -> Expr:
        if isinstance(node, Load):
            array = new(node.array)
            return node if array == node.array else Load(array, node.index, node.dtype, node.span)
        if isinstance(node, Var):
            name = new(node.name)
            return node if name == node.name else Var(name, node.dtype, node.count)
        return node

    def expr(e: Expr) -> Expr:
        return rewrite(e, move)

    statements = {new(n): _statement(s, new, expr) for n, s in scop.statements.items()}
    if len(statements) != len(scop.statements):
        raise ScopError(f"{scop.name}: renaming gives two statements one name")
    arrays: dict[str, Array] = {}
    for n, a in scop.arrays.items():
        given = None if a.given is None else tuple(expr(e) for e in a.given)
        moved = replace(a, name=new(n), shape=tuple(expr(e) for e in a.shape), given=given)
        if new(n) in arrays:
            _same_tensor(scop, arrays[new(n)], moved)
            moved = _stronger(arrays[new(n)], moved)
        arrays[new(n)] = moved
    return replace(
        scop,
        arrays=arrays,
        statements=statements,
        tree=_tree(scop.tree, new, statements),
        args=tuple(dict.fromkeys(map(new, scop.args))),
        results=tuple(dict.fromkeys(map(new, scop.results))),
        marks=tuple(replace(m, loop=new(m.loop)) for m in scop.marks),
    )


def _stronger(a: Array, b: Array) -> Array:
    """Of two views of one tensor the one that is written."""
    return a if a.kind != "in" else b


def _statement(s: Statement, new: Callable[[str], str], expr: Callable[[Expr], Expr]) -> Statement:
    iters = tuple(map(new, s.iters))
    return replace(
        s,
        name=new(s.name),
        iters=iters,
        domain=_renamed_set(s.domain, new(s.name), iters),
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
                new(m.name), {new(s): _renamed_value(pa, statements[new(s)]) for s, pa in m.schedule.items()},
                m.kind, m.factor, m.coincident,
            )
            for m in node.members
        )  # fmt: skip
        return Band(members, children[0], node.permutable)
    if isinstance(node, Filter):
        domain = {new(s): _renamed_set(d, new(s), statements[new(s)].iters) for s, d in node.domain.items()}
        return Filter(domain, children[0])
    if isinstance(node, Promote):
        return replace(node, array=new(node.array), buffer=new(node.buffer), child=children[0])
    return node.with_children(children)


def _renamed_value(pa: isl.PwAff, stmt: Statement) -> isl.PwAff:
    """The function on the statement's renamed instances (its pieces stay as they are)."""
    pa = pa.set_tuple_id(isl.dim_type.in_, isl.Id.read_from_str(isl.DEFAULT_CONTEXT, stmt.name))
    for k, name in enumerate(stmt.iters):
        pa = pa.set_dim_id(isl.dim_type.in_, k, isl.Id.read_from_str(isl.DEFAULT_CONTEXT, name))
    return pa


def _renamed_set(s: isl.Set, name: str, iters: tuple[str, ...]) -> isl.Set:
    s = s.set_tuple_name(name)
    for k, i in enumerate(iters):
        s = s.set_dim_name(isl.dim_type.set, k, i)
    return s


def compose(
    name: str,
    parts: Sequence[tuple[Scop, Mapping[str, str]]],
    inputs: Iterable[str],
    outputs: Iterable[str],
) -> Scop:
    """Run `parts` one after another as one Scop.

    Each part comes with a map from its argument and result names to shared tensor names; a
    result that is not mapped is dropped. `inputs` (in call order) and `outputs` are shared
    names; a shared tensor that is written and is neither becomes `local`, an input that is
    written `inout`. Parameters of one name are one parameter. Loops, statements and private
    arrays get unique names (`_1`, `_2`, ...). The tree is the Sequence of the parts' trees.

    Raises:
        ScopError: a map names no argument or result, an argument is not mapped, two parts
            disagree about a tensor's dtype or shape, a tensor is read before a part makes it,
            or an input or output is not touched.
    """
    inputs, outputs = tuple(inputs), tuple(outputs)
    for scop, wiring in parts:
        _check_wiring(name, scop, wiring)
    taken: set[str] = {t for _, wiring in parts for t in wiring.values()}
    taken |= {p for scop, _ in parts for p in scop.params}
    renamed = [_unique(scop, wiring, taken) for scop, wiring in parts]
    params = tuple(dict.fromkeys(p for scop in renamed for p in scop.params))
    context = isl.Set.universe(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(params))).params()
    for scop in renamed:
        context = context.intersect(scop.context)
    if context.is_empty() and params:
        raise ScopError(f"{name}: no sizes {', '.join(params)} suit all of the parts")
    _check_flow(name, renamed, inputs)
    arrays = _declared(name, renamed, inputs, outputs)
    statements = {n: _aligned(s, params) for scop in renamed for n, s in scop.statements.items()}
    return Scop(
        name, params, context, arrays, statements, _in_order(renamed, statements),
        inputs, tuple(t for t in outputs if arrays[t].kind == "out"),
        all(s.reassociate for s in renamed), all(s.fast_math for s in renamed),
        tuple(n for s in renamed for n in s.notes), tuple(m for s in renamed for m in s.marks),
    )  # fmt: skip


def _check_wiring(name: str, scop: Scop, wiring: Mapping[str, str]) -> None:
    for n in wiring:
        if n not in scop.args and n not in scop.results:
            raise ScopError(f"{name}: {scop.name} has no argument or result '{n}'")
    for n in scop.args:
        if n not in wiring:
            raise ScopError(f"{name}: the argument '{n}' of {scop.name} is not connected")


def _check_flow(name: str, renamed: Sequence[Scop], inputs: tuple[str, ...]) -> None:
    """Every tensor that a part takes is an input or was made by an earlier part."""
    made = set(inputs)
    for scop in renamed:
        for t in scop.args:
            if t not in made:
                raise ScopError(f"{name}: {scop.name} reads the tensor '{t}' before any part makes it")
        made |= {s.array for s in scop.statements.values()}


def _declared(
    name: str, renamed: Sequence[Scop], inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> dict[str, Array]:
    """The arrays of the whole: inputs, outputs, then locals in order of appearance."""
    written = {s.array for scop in renamed for s in scop.statements.values()}
    found: dict[str, Array] = {}
    for scop in renamed:
        for a in scop.arrays.values():
            if a.name in found:
                _same_tensor(scop, found[a.name], a)
                continue
            kind = ("inout" if a.name in written else "in") if a.name in inputs else "local"
            if a.name in outputs and a.name not in inputs:
                kind = "out"
            found[a.name] = replace(a, kind=kind, scalar=a.scalar and kind == "in")  # type: ignore[arg-type]
    for t in (*inputs, *outputs):
        if t not in found:
            raise ScopError(f"{name}: no part uses the tensor '{t}'")
    for t in outputs:
        if t not in written:
            raise ScopError(f"{name}: no part writes the output '{t}'")
    order = dict.fromkeys((*inputs, *outputs, *found))
    return {t: found[t] for t in order}


def _same_tensor(scop: Scop, known: Array, other: Array) -> None:
    """Two parts' views of one tensor agree: dtype, rank, and sizes wherever the parameters allow."""
    if known.dtype == other.dtype and len(known.shape) == len(other.shape):
        if all(_equal_sizes(a, b) for a, b in zip(known.shape, other.shape, strict=True)):
            return
    from polyc.poly.text import print_array

    raise ScopError(f"the tensor '{other.name}' is ({print_array(known)}) in one part, ({print_array(other)}) in "
                    f"{scop.name}")  # fmt: skip


def _equal_sizes(a: Expr, b: Expr) -> bool:
    if a == b:
        return True
    names = sorted({v.name for e in (a, b) for v in walk_expr(e) if isinstance(v, Var)})
    space = set_space("", [], names)
    try:
        return bool(to_pw_aff(a, space).is_equal(to_pw_aff(b, space)))
    except NotAffine:
        return False


def _unique(scop: Scop, wiring: Mapping[str, str], taken: set[str]) -> Scop:
    """Wire the shared names and give everything private a name that nobody has."""
    buffers = [n.buffer for n in promotions_below(scop.tree)]
    private = [n for n in scop.arrays if n not in wiring]
    private += list(scop.statements)
    private += [i for s in scop.statements.values() for i in s.iters]
    private += [*loop_names(scop.tree), *buffers]
    names = dict(wiring)
    for n in dict.fromkeys(private):
        fresh, k = n, 0
        while fresh in taken:
            k += 1
            fresh = f"{n}_{k}"
        taken.add(fresh)
        names[n] = fresh
    return rename(scop, names)


def _aligned(s: Statement, params: tuple[str, ...]) -> Statement:
    return replace(s, domain=s.domain.align_params(set_space(s.name, s.iters, params)))


def _in_order(scops: Sequence[Scop], statements: Mapping[str, Statement]) -> Node:
    """A Sequence over the parts; parts that are sequences themselves are spliced in."""
    filters: list[Filter] = []
    for scop in scops:
        if isinstance(scop.tree, SequenceNode):
            filters.extend(scop.tree.filters)
        else:
            filters.append(Filter({n: statements[n].domain for n in scop.statements}, scop.tree))
    return filters[0].child if len(filters) == 1 else SequenceNode(tuple(filters))
