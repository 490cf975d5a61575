"""Forward substitution: a local array disappears, its readers compute the value themselves.

For an array that one plain statement writes (`H[f(i)] = e(i)`, `f` one to one), a load
`H[g(j)]` becomes `e(f^-1(g(j)))`. The value is the same to the last bit: no operation is
added, removed or reordered, it only happens where it is needed (and as often).

`Schedule.inline` does this for any array whose writers flow analysis can tell; here the checks are by
the form of the subscripts alone, because the graph driver asks for hundreds of nodes of a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.certificates import errs_alike
from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Const, Expr, Load, Var, loads, rewrite, substitutable, substitute
from polyc.poly.reduction import rounds_alike
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Filter, Sequence


def writer_of(scop: Scop, array: str) -> Statement:
    """The one statement that defines the local array, fit to be substituted.

    Raises:
        ScopError: there is no such statement; the text says why.
    """
    if scop.arrays[array].kind != "local":
        raise ScopError(f"'{array}' is needed outside of the kernel")
    writers = [s for s in scop.statements.values() if s.array == array]
    if len(writers) != 1:
        raise ScopError(f"'{array}' is written by {len(writers)} statements")
    (writer,) = writers
    if writer.reduction or writer.predicate is not None or writer.dynamic:
        raise ScopError(f"'{array}' is written by {writer.name}, which is no plain assignment")
    if any(load.array == array for load in loads(writer.value)):
        raise ScopError(f"'{array}' is written from its own values")
    if not substitutable(writer.value):
        raise ScopError(f"'{array}' is written by {writer.name}, a long run of assignments")
    return writer


def forward(scop: Scop, array: str) -> Scop:
    """The Scop without the local `array` and without the statement that wrote it.

    Raises:
        ScopError: the array cannot be substituted; the text says why.
    """
    writer = writer_of(scop, array)
    move = computed_by(writer)
    _check_order(scop, writer)
    _check_defined(scop, writer)
    statements = {n: _rewritten(s, array, move) for n, s in scop.statements.items() if s is not writer}
    for name, new in statements.items():
        if not rounds_alike(scop, scop.statements[name], new):
            raise ScopError(f"'{array}' is a product that {name} adds up rounded, and the order of sums is fixed")
    arrays = {n: a for n, a in scop.arrays.items() if n != array}
    assert isinstance(scop.tree, Sequence)  # `_check_order` saw to it
    kept = tuple(f for f in scop.tree.filters if writer.name not in f.domain)
    tree = kept[0].child if len(kept) == 1 else Sequence(kept)
    return replace(scop, arrays=arrays, statements=statements, tree=tree)


def computed_by(writer: Statement) -> Callable[[Expr], Expr]:
    """What makes of a load of the writer's array the value that the writer computes for this element.

    Raises:
        ScopError: it does not write element by element, each once.
    """
    inverse = dimensions(writer.index, writer.iters)
    if inverse is None:
        raise ScopError(f"'{writer.array}' is not written element by element")
    if set(inverse) != set(writer.iters):
        raise ScopError(f"'{writer.array}' is written more than once")

    def move(node: Expr) -> Expr:
        if isinstance(node, Load) and node.array == writer.array:
            return substitute(writer.value, {i: _shifted(node.index[k], -c) for i, (k, c) in inverse.items()})
        return node

    return move


def dimensions(index: tuple[Expr, ...], iters: tuple[str, ...]) -> dict[str, tuple[int, int]] | None:
    """For each iterator that a subscript is, but for a constant, the dimension and the constant; None where a subscript
    is neither that nor a constant. With all iterators in it no two instances have the same element."""
    found: dict[str, tuple[int, int]] = {}
    for k, subscript in enumerate(index):
        e, offset = subscript, 0
        if isinstance(subscript, Binary) and subscript.op in "+-" and isinstance(subscript.b, Const):
            e, offset = subscript.a, int(subscript.b.value) * (1 if subscript.op == "+" else -1)
        if isinstance(e, Var) and e.name in iters and e.name not in found:
            found[e.name] = (k, offset)
        elif not isinstance(e, Const):
            return None
    return found


def _shifted(e: Expr, by: int) -> Expr:
    return e if by == 0 else Binary("+", e, Const(by, i64), i64)


def _rewritten(s: Statement, array: str, fn: Callable[[Expr], Expr]) -> Statement:
    hidden = [*s.index, *(e for d in s.dynamic for e in (d.lo, d.hi))]
    if any(load.array == array for e in hidden for load in loads(e)):
        raise ScopError(f"'{array}' is used as a subscript or a bound in {s.name}")
    predicate = None if s.predicate is None else rewrite(s.predicate, fn)
    return replace(s, value=rewrite(s.value, fn), predicate=predicate)


def _check_order(scop: Scop, writer: Statement) -> None:
    """The writer is a nest of its own before all readers, and what it reads stays as it is after it."""
    if not isinstance(scop.tree, Sequence):
        raise ScopError(f"'{writer.array}' is written in the loops that read it")
    place = _place(scop.tree.filters, writer.name)
    if set(scop.tree.filters[place].domain) != {writer.name}:
        raise ScopError(f"'{writer.array}' is written in loops with other statements")
    sources = {load.array for load in loads(writer.value)}
    for s in scop.statements.values():
        if s is writer:
            continue
        later = _place(scop.tree.filters, s.name) > place
        if not later and any(a.array == writer.array for a in accesses(scop) if a.stmt == s.name):
            raise ScopError(f"'{writer.array}' is read before it is written")
        if later and s.array in sources:
            raise ScopError(f"'{s.array}' changes between '{writer.array}' and its readers")


def _place(filters: tuple[Filter, ...], stmt: str) -> int:
    places = [k for k, f in enumerate(filters) if stmt in f.domain]
    if len(places) != 1:
        raise ScopError(f"{stmt} is split over several nests")
    return places[0]


def _check_defined(scop: Scop, writer: Statement) -> None:
    """Every element that is read was written (an element that was not has no value to compute)."""
    written: isl.Set | None = None
    for a in accesses(scop):
        if a.array == writer.array and a.write:
            written = a.map.range()
    assert written is not None
    for a in accesses(scop):
        if a.array == writer.array and not a.write and not a.map.range().is_subset(written):
            raise ScopError(f"{a.stmt} reads elements of '{writer.array}' that {writer.name} does not write")
    if not errs_alike(scop, writer.name, surely_read(scop, writer.array)):
        raise ScopError(f"{writer.name} may leave an array, and not all that it writes to '{writer.array}' is read")


def surely_read(scop: Scop, array: str) -> isl.Set | None:
    """The instances of the one writer of an array whose element is read whatever the data; None: none is known."""
    (write,) = (a.map for a in accesses(scop) if a.array == array and a.write)
    read = [a.map.range() for a in accesses(scop) if a.array == array and not a.write and a.must]
    return reduce(lambda a, b: a.union(b), read).apply(write.reverse()) if read else None
