"""`read_first`: an element that a statement reads is copied into a local array just before it: node splitting.

    i: (A[i] = f(i); B[i] = A[i] * A[i + 1])   ->   i: (A[i] = f(i); t[i] = A[i + 1]; B[i] = A[i] * t[i])

The copy is one more statement, which may then stand before the one that overwrites the element (Kuck, Kuhn, Padua,
Leasure and Wolfe, "Dependence graphs and compiler optimizations", POPL 1981).
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.access import guarded_loads
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr, Load, Var, rewrite
from polyc.poly.records import replace
from polyc.poly.scop import Array, Scop, Statement
from polyc.poly.text import print_expr
from polyc.poly.tree import Node, loop_dim
from polyc.scheduler.transformations.added import beside, minus, new_name, program, taken, value_range
from polyc.scheduler.transformations.tree_edit import flatten, reaching


def read_first(scop: Scop, tree: Node, statement: str, read: str, array: str | None) -> tuple[Scop, Node]:
    """`scop` in which `statement` reads `read` (as text) from a local array, and its tree.

    Raises:
        ScheduleError: no such statement, nothing that it reads looks so, or the name is taken.
    """
    if statement not in scop.statements:
        raise ScheduleError(f"no statement '{statement}': the statements are {', '.join(scop.statements)}")
    old = scop.statements[statement]
    found = [load for load in always_read(old) if print_expr(load) == read]
    if not found:
        every = ", ".join(dict.fromkeys(map(print_expr, always_read(old)))) or "nothing"
        raise ScheduleError(f"{statement} does not read '{read}' each time; it reads {every}")
    if old.dynamic:
        raise ScheduleError(f"how often {statement} runs depends on data")
    if found[0] == old.target and old.reduction is not None:
        raise ScheduleError(f"{read} is what {statement} adds up")
    if array is not None and (array in taken(scop, tree) or not array.isidentifier()):
        raise ScheduleError(f"read_first: '{array}' is no new name")
    copy = _array(scop, old, array or new_name(scop, tree, f"{found[0].array}_read"), found[0])
    index = tuple(minus(Var(i), low) for i, low in zip(old.iters, copy[1], strict=True))
    name = new_name(scop, tree, f"{statement}_{copy[0].name}")
    first = Statement(
        name, old.iters, old.domain.set_tuple_name(name), copy[0].name, index, found[0], old.predicate, None, (),
        old.span,
    )  # fmt: skip

    def copied(e: Expr) -> Expr:
        return Load(first.array, index, e.dtype, e.span) if isinstance(e, Load) and print_expr(e) == read else e

    changed = replace(old, value=rewrite(old.value, copied))
    statements: dict[str, Statement] = {}
    for n, s in scop.statements.items():
        statements |= {first.name: first, n: changed} if n == statement else {n: s}
    tree = flatten(beside(tree, statement, [first, changed], reaching(scop, ())))
    arrays = {**scop.arrays, first.array: copy[0]}
    return replace(scop, arrays=arrays, statements=statements, tree=program(tree)), tree


def always_read(stmt: Statement) -> list[Load]:
    """What the value of a statement reads, whichever of its alternatives is taken."""
    domain = stmt.domain
    found = guarded_loads(stmt.value, domain, domain.get_space())
    return [load for load, where, sure in found if sure and domain.is_subset(where)]


def _array(scop: Scop, stmt: Statement, name: str, read: Load) -> tuple[Array, list[Expr]]:
    """The local array, an element for each iteration, and where its subscripts begin."""
    domain, lows, shape = stmt.domain.intersect_params(scop.context), [], []
    for k, iterator in enumerate(stmt.iters):
        values = isl.Map.from_pw_aff(loop_dim(domain, k)).intersect_domain(domain).range()
        low, extent = value_range(scop, values, f"loop '{iterator}'")
        lows.append(low)
        shape.append(extent)
    return Array(name, read.dtype, tuple(shape), "local", span=scop.arrays[read.array].span), lows
