"""Arrays of one dimension that a program uses as if they had more, with the dimensions that it means.

    C[N * i + j] += A[K * i + k] * B[N * k + j]    ->    C[i, j] += A[i, k] * B[k, j]

A dimension is cut in two, `W * q + r` with `0 <= r < W` into `[q, r]`, where every access has a subscript of this form
in all instances, or one that counts all elements. The memory is the same: callers have the array in the shape that it
is `given` in. (Delinearization: Maslov, "Delinearization: an efficient way to break multiloop dependence equations",
PLDI 1992; Grosser et al., "Optimistic delinearization of parametrically sized arrays", ICS 2015.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from polyc.poly.access import Access, accesses
from polyc.poly.certificates import expressions, open_sites, value_range
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Var, const_int, loads, walk
from polyc.poly.forms.affine import terms_of
from polyc.poly.rewriting.changed_loops import iterators_of, mapped, tidy
from polyc.poly.rewriting.digits import in_digits
from polyc.poly.scop import Array, Scop
from polyc.poly.tree import loop_names

Terms = Mapping[str, int]
"""Factors by variable; the constant by ``""``."""

Cut = tuple[Expr, Expr]
"""`q` and `r` of a subscript `W * q + r`."""


def with_dimensions(scop: Scop, marked: set[str]) -> Scop:
    """The program with dimensions for arrays that have one (but for those of copies for each iteration), and loops over
    all of their elements as two; `marked` loops stay. The Scop itself where there are none."""
    for name, array in scop.arrays.items():
        one = array.expanded + 1 == len(array.shape)
        cut = _cut_once(scop, name, range(array.expanded + one), marked)
        while cut is not None:
            scop = cut
            cut = _cut_once(scop, name, range(len(scop.arrays[name].shape)), marked)
    return scop


def _cut_once(scop: Scop, name: str, dims: Sequence[int], marked: set[str]) -> Scop | None:
    """The program with one of these dimensions of an array as two, None where its subscripts have no such form."""
    array = scop.arrays[name]
    for d in dims:
        here = [(a, _terms(a.load.index[d])) for a in accesses(scop) if a.array == name]
        known = [(a, t) for a, t in here if t is not None]
        extent = _terms(array.shape[d])
        if len(known) < len(here) or extent is None:
            continue
        for width in sorted({abs(c) for _, t in known for n, c in t.items() if n and abs(c) > 1}):
            if not any(c % width for c in extent.values()):
                found = _in_width(scop, array, d, width, known, marked)
                if found is not None:
                    return found
    return None


def _in_width(
    scop: Scop, array: Array, d: int, width: int, known: Sequence[tuple[Access, Terms]], marked: set[str]
) -> Scop | None:
    """The program with dimension d in rows of `width` elements; None where an access has no such form, or none needs
    it."""
    if _cuts([x for x in known if not _is_iterator(x[1])], d, width) is None:
        return None
    if any(site.load.array == array.name for site in open_sites(scop)):
        return None  # an error names the subscript that the program has
    for a, terms in known:
        if _is_iterator(terms) and (loop := _loop_of(scop, a.stmt, next(iter(terms)))) is not None:
            split = None if loop in marked else in_digits(scop, loop, width)
            if split is None:
                return None
            scop = split[0]
    here = [(a, _terms(a.load.index[d])) for a in accesses(scop) if a.array == array.name]
    cuts = _cuts([(a, t) for a, t in here if t is not None], d, width)
    if cuts is None or any((n, e) not in cuts for n, e in _subscripts(scop, array.name, d)):
        return None
    return _with_cut(scop, array, d, width, cuts)


def _subscripts(scop: Scop, array: str, d: int) -> Iterator[tuple[str, Expr]]:
    """By statement every subscript of a dimension, also where nothing ever reads it."""
    for s in scop.statements.values():
        for load in (s.target, *(x for e in expressions(s) for x in loads(e))):
            if load.array == array:
                yield s.name, load.index[d]


def _is_iterator(terms: Terms) -> bool:
    """Whether a subscript is a variable alone."""
    return {n: c for n, c in terms.items() if c and n} == terms and list(terms.values()) == [1]


def _loop_of(scop: Scop, statement: str, iterator: str) -> str | None:
    """The loop that has this iterator as its value in a statement; None where it has been split already."""
    for loop in loop_names(scop.tree):
        if (iterators_of(scop, loop) or {}).get(statement) == iterator:
            return loop
    return None


def _terms(e: Expr) -> dict[str, int] | None:
    """Factors of a sum of multiples of variables, computed in i64; None for anything else."""
    return None if any(isinstance(x, Cast) or x.dtype != i64 for x in walk(e)) else terms_of(e)


def _cuts(known: Sequence[tuple[Access, Terms]], d: int, width: int) -> dict[tuple[str, Expr], Cut] | None:
    """By statement and subscript what it is in two dimensions; None where one has no such form, or none needs both."""
    found: dict[tuple[str, Expr], Cut] = {}
    both = False
    for a, terms in known:
        cut = _cut(a, terms, width)
        if cut is None or found.setdefault((a.stmt, a.load.index[d]), cut) != cut:
            return None
        both = both or not any(isinstance(e, Const) for e in cut)
    return found if both else None


def _cut(a: Access, terms: Terms, width: int) -> Cut | None:
    """A subscript in two dimensions, where the second one stays inside in all instances."""
    high = {n: c // width for n, c in terms.items() if n and c % width == 0}
    low = {n: c for n, c in terms.items() if n and c % width}
    least, most = value_range(_linear(low), a.map.domain()) if low else (0, 0)
    if least is None or most is None:
        return None
    constant = terms.get("", 0)
    for c in (constant % width, constant % width - width):
        if least + c >= 0 and most + c < width:
            return _linear({**high, "": (constant - c) // width}), _linear({**low, "": c})
    return None


def _linear(terms: Terms) -> Expr:
    """The sum, as an expression."""
    total: Expr = const_int(terms.get("", 0))
    for name, factor in terms.items():
        if name:
            total = Binary("+", total, Binary("*", const_int(factor), Var(name), i64), i64)
    return tidy(total)


def _with_cut(scop: Scop, array: Array, d: int, width: int, cuts: Mapping[tuple[str, Expr], Cut]) -> Scop:
    """The program with the dimension as two."""
    rows = _linear({n: c // width for n, c in (_terms(array.shape[d]) or {}).items()})
    given = array.given if array.kind == "local" else array.outside
    shape = (*array.shape[:d], rows, const_int(width), *array.shape[d + 1 :])
    new = replace(array, shape=shape, given=given, expanded=array.expanded + (d < array.expanded))
    statements = {}
    for name, s in scop.statements.items():

        def moved(e: Expr, name: str = name) -> Expr:
            if isinstance(e, Load) and e.array == array.name:
                return replace(e, index=(*e.index[:d], *cuts[name, e.index[d]], *e.index[d + 1 :]))
            return e

        target = moved(s.target)
        assert isinstance(target, Load)
        statements[name] = mapped(replace(s, index=target.index), moved)
    return replace(scop, arrays={**scop.arrays, array.name: new}, statements=statements)
