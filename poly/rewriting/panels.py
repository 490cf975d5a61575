"""Writing a local array in the order of its memory: the writer's loops become the layout's."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Expr, Var, compare, const_int, substitute
from polyc.poly.forms.affine import set_space, to_set
from polyc.poly.rewriting.forward import writer_of
from polyc.poly.rewriting.stored import Layout
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Member, Node, Sequence, loop_dim


def stored_in_order(scop: Scop, array: str, layout: Layout) -> Scop:
    """The same algorithm, with the one writer of the local `array` (already stored by `layout`)
    running over the array's coordinates, outermost first.

    Where a dimension was cut, `(dim, div, 0)` and `(dim, 1, div)`, its iterator becomes
    `div * outer + inner`; the writer's subscripts had to be its iterators, one each.

    Raises:
        ScopError: the array has no such writer.
    """
    writer = writer_of(scop, array)
    dims = {dim for dim, _, _ in layout}
    # Position of each original dimension's iterator in the writer: the coordinate with div 1 names it.
    origin: dict[int, str] = {}
    for at, (dim, div, mod) in enumerate(layout):
        if div == 1:
            e = writer.index[at]
            inner = e.a if mod and isinstance(e, Binary) else e
            if not isinstance(inner, Var):
                raise ScopError(f"'{array}' is not written element by element")
            origin[dim] = inner.name
    if set(origin) != dims or sorted(origin.values()) != sorted(writer.iters):
        raise ScopError(f"'{array}' is not written element by element")
    names = tuple(f"{origin[dim]}_{k}" if div != 1 or mod else origin[dim] for k, (dim, div, mod) in enumerate(layout))
    taken = {*scop.arrays, *scop.statements, *scop.params}
    taken |= {i for s in scop.statements.values() if s is not writer for i in s.iters}
    names = tuple(_fresh(n, taken) for n in names)
    values: dict[str, Expr] = {}
    for dim, name in origin.items():
        total: Expr | None = None
        for k, (d, div, _) in enumerate(layout):
            if d == dim:
                part: Expr = Var(names[k]) if div == 1 else Binary("*", Var(names[k]), const_int(div), i64)
                total = part if total is None else Binary("+", total, part, i64)
        assert total is not None
        values[name] = total
    new = _moved(scop, writer, names, values, layout)
    band = Band(tuple(Member(n, {new.name: loop_dim(new.domain, k)}) for k, n in enumerate(names)), Leaf(), True)
    return replace(scop, statements={**scop.statements, new.name: new}, tree=_replaced(scop.tree, new, band))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _moved(scop: Scop, writer: Statement, names: tuple[str, ...], values: dict[str, Expr], layout: Layout) -> Statement:
    if not writer.domain.is_box():
        raise ScopError(f"the loops of {writer.name} are no box")
    space = set_space(writer.name, names, scop.params)
    domain = isl.Set.universe(space)
    for k, name in enumerate(writer.iters):
        low, high = writer.domain.dim_min_val(k), writer.domain.dim_max_val(k)
        if not (low.is_int() and high.is_int()):
            raise ScopError(f"the loops of {writer.name} have no constant bounds")
        for op, bound in ((">=", low), ("<=", high)):
            domain = domain.intersect(to_set(compare(op, values[name], const_int(int(bound.to_python()))), space))
    for name, (_, _, mod) in zip(names, layout, strict=True):
        if mod:
            domain = domain.intersect(to_set(compare(">=", Var(name), const_int(0)), space))
            domain = domain.intersect(to_set(compare("<", Var(name), const_int(mod)), space))
    value = substitute(writer.value, values)
    return replace(writer, iters=names, domain=domain, index=tuple(Var(n) for n in names), value=value)


def _replaced(tree: Node, new: Statement, band: Band) -> Node:
    """The tree with the writer's own nest replaced."""
    if not isinstance(tree, Sequence):
        raise ScopError(f"'{new.array}' is written in the loops that read it")
    filters = []
    for f in tree.filters:
        if new.name not in f.domain:
            filters.append(f)
        elif set(f.domain) != {new.name}:
            raise ScopError(f"'{new.array}' is written in loops with other statements")
        else:
            filters.append(Filter({new.name: new.domain}, band))
    return Sequence(tuple(filters))
