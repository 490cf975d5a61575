"""Which elements of its operands an element of a node's result is made from, as isl maps between tensors.

A node's Scop says what each statement reads and writes. Followed backwards from the result, through local arrays, that
gives for each operand the relation `{ Y[y] -> X[x] : X[x] is read for Y[y] }`. Arrays of a Scop may have other shapes
than the tensors (leading axes as one): both are rows of the same elements, so the relation is moved to the tensors'
own indices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache

import islpy as isl

from polyc.graph_driver.operators.context import OperatorScop, array_shape
from polyc.poly.access import Access, accesses
from polyc.poly.closed_forms.counting import CountingError, count_set
from polyc.poly.closed_forms.operations import operations
from polyc.poly.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var
from polyc.poly.forms.ranges import points_of_box
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.records import dataclass
from polyc.poly.rewriting.part import sums_of
from polyc.poly.scop import Scop

Shape = tuple[int, ...]
OPERATIONS = 20_000_000
"""isl operations for one node (a few seconds)."""
ROUNDS = 12
"""How often a value may be handed on from array to array in one operator; recurrences go on for longer, and are taken
to read everything."""


@dataclass(frozen=True, eq=False)
class Flow:
    """A node as relations of its tensors.

    `reads[k][i]`: from elements of result k to those of operand i. `sums[k][i]`: where result k is one sum (or maximum,
    minimum: `reduce[k]`) over instances that read operand i, `{ X_i[x] -> X_j[y] }` by j: what of operand j
    meets an element of operand i; operands that are absent from it are not read by the sum. `skeleton`: the
    statements without their subscripts. `linear`: sets of operands in which the results are linear together (a partial
    sum of these makes a partial sum). `moving`: values depend on their place, so no part can be computed as a whole.
    """

    reads: tuple[Mapping[int, isl.Map], ...]
    sums: tuple[Mapping[int, Mapping[int, isl.Map]], ...]
    reduce: tuple[str, ...]
    skeleton: tuple[object, ...]
    moving: bool
    linear: tuple[frozenset[int], ...]
    scop: Scop
    known: dict[object, object] = field(default_factory=dict)

    @cached_property
    def flops(self) -> float:
        """Floating-point operations."""
        statements = self.scop.statements.values()
        try:
            with quota(OPERATIONS):
                return float(sum(n * _card(where) for s in statements for n, where, _ in operations(self.scop, s)))
        except QuotaExceeded:
            return float(sum(n * (points_of_box(w) or 0) for s in statements for n, w, _ in operations(self.scop, s)))


def same_elements(a: Sequence[int], b: Sequence[int], name_a: str, name_b: str) -> isl.Map:
    """`{ a[...] -> b[...] }`: equal places in a row of elements, for two shapes of as many elements."""
    return _same_elements(tuple(a), tuple(b), name_a, name_b)


@lru_cache(maxsize=4096)
def _same_elements(a: Shape, b: Shape, name_a: str, name_b: str) -> isl.Map:
    ia, ib = [f"i{k}" for k in range(len(a))], [f"o{k}" for k in range(len(b))]
    rules = [f"0 <= {i} < {n}" for i, n in [*zip(ia, a, strict=True), *zip(ib, b, strict=True)]]
    x = y = 0
    while x < len(a) or y < len(b):  # axes that belong together: the shortest runs of equal products
        m, n = x, y
        left, right = a[x] if x < len(a) else 1, b[y] if y < len(b) else 1
        x, y = min(x + 1, len(a)), min(y + 1, len(b))
        while left != right:
            if left < right:
                left, x = left * a[x], x + 1
            else:
                right, y = right * b[y], y + 1
        rules.append(f"{_row(ia[m:x], a[m:x])} = {_row(ib[n:y], b[n:y])}")
    return isl.Map(f"{{ {name_a}[{', '.join(ia)}] -> {name_b}[{', '.join(ib)}] : {' and '.join(rules)} }}")


def box_set(part: Sequence[tuple[int, int]], name: str) -> isl.Set:
    """The elements of a box of a tensor."""
    names = [f"d{k}" for k in range(len(part))]
    rules = [f"{a} <= {d} < {b}" for d, (a, b) in zip(names, part, strict=True)]
    return isl.Set(f"{{ {name}[{', '.join(names)}] : {' and '.join(rules) or 'true'} }}")


def _row(names: Sequence[str], sizes: Sequence[int]) -> str:
    terms, stride = [], 1
    for name, n in reversed([*zip(names, sizes, strict=True)]):
        terms.append(f"{stride}{name}")
        stride *= n
    return " + ".join(terms) or "0"


def flow_of(
    operator: OperatorScop, operands: Mapping[int, Shape], results: Sequence[Shape], through: bool = False
) -> Flow | None:
    """The relations of a node with these shapes of its operands (by position) and results. None: its Scop has sizes
    that are not numbers, or is too hard for isl. `through`: sums may read operands by way of local arrays."""
    scop = operator.scop
    arrays = {name: array_shape(operator, name) for name in (*scop.args, *scop.results)}
    if scop.params or any(s is None for s in arrays.values()):
        return None
    try:
        with quota(OPERATIONS):
            own = {
                position: same_elements(arrays[array] or (), operands[position], array, f"X{position}")
                for position, array in operator.inputs if position in operands
            }  # fmt: skip
            by_array: dict[str, list[int]] = {}
            for position, array in operator.inputs:
                if position in operands:
                    by_array.setdefault(array, []).append(position)
            reads = []
            for name, shape in zip(operator.outputs, results, strict=True):
                start = same_elements(shape, arrays[name] or (), "Y", name)
                reached = _behind(scop, name, start)
                reads.append(
                    {
                        p: reached[array].apply_range(own[p]).coalesce()
                        for array, positions in by_array.items()
                        if array in reached
                        for p in positions
                    }
                )
            kinds = sums_of(scop) if through or len(operator.outputs) == 1 else {}
            sums = tuple(_sums(scop, r, by_array, own, through) if r in kinds else {} for r in operator.outputs)
            reduce = tuple(_NAMES[kinds[r]] if r in kinds else "" for r in operator.outputs)
    except QuotaExceeded:
        return None
    shape_of = tuple((s.name, s.reduction, _skeleton(s.value)) for s in scop.statements.values())
    moving = any(_by_place(s.value) or s.predicate is not None or s.dynamic for s in scop.statements.values())
    return Flow(tuple(reads), sums, reduce, shape_of, moving, _linear(scop, by_array), scop)


def _card(points: isl.Set) -> int:
    """The number of points of a set without parameters (nearly always a box); of one that is too hard, its box's."""
    rank = points.dim(isl.dim_type.set)
    if points.is_empty():
        return 0
    product, box = 1, isl.Set.universe(points.get_space())
    for k in range(rank):
        low, high = points.dim_min_val(k), points.dim_max_val(k)
        product *= int(high.to_python()) - int(low.to_python()) + 1
        box = box.lower_bound_val(isl.dim_type.set, k, low).upper_bound_val(isl.dim_type.set, k, high)
    if rank == 0 or points.is_equal(box):
        return product
    try:
        return int(count_set(points)())
    except CountingError:
        return product


def _behind(scop: Scop, name: str, start: isl.Map) -> dict[str, isl.Map]:
    """For each array that flows into array `name` the map from what `start` maps from to its elements."""
    found: dict[str, isl.Map] = {name: start}
    writes: dict[str, list[Access]] = {}
    loads: dict[str, list[Access]] = {}
    for a in accesses(scop):
        if a.write:
            writes.setdefault(a.array, []).append(a)
        elif not a.accumulator:
            loads.setdefault(a.stmt, []).append(a)
    new = {name: start}
    for _ in range(ROUNDS):
        following: dict[str, isl.Map] = {}
        for array, relation in new.items():
            for w in writes.get(array, ()):
                instances = relation.apply_range(w.map.reverse())
                for load in loads.get(w.stmt, ()):
                    reach = instances.apply_range(load.map)
                    old = following.get(load.array)
                    following[load.array] = reach if old is None else old.union(reach)
        new = {}
        for array, relation in following.items():
            before = found.get(array)
            if before is not None and relation.is_subset(before):
                continue
            found[array] = relation.coalesce() if before is None else before.union(relation).coalesce()
            new[array] = found[array]
        if not new:
            return found
    everything = start.domain()
    for array in new:  # a recurrence: all that is ever read
        elements = isl.Set.empty(found[array].range().get_space())
        for a in accesses(scop):
            if a.array == array and not a.write:
                elements = elements.union(a.map.range())
        found[array] = isl.Map.from_domain_and_range(everything, elements)
        for other, all_loads in ((a.array, a) for a in accesses(scop) if not a.write):
            whole = isl.Map.from_domain_and_range(everything, all_loads.map.range())
            found[other] = found[other].union(whole).coalesce() if other in found else whole
    return found


_NAMES = {"+": "sum", "max": "max", "min": "min"}


def _sums(
    scop: Scop, result: str, by_array: Mapping[str, list[int]], own: Mapping[int, isl.Map], through: bool
) -> dict[int, dict[int, isl.Map]]:
    """The operands that a sum reads, by element of each (see `Flow`); nothing where it is too hard to say."""
    totals = [s for s in scop.statements.values() if s.array == result and s.reduction is not None]
    if not through and (len(totals) > 1 or totals[0].predicate is not None):
        return {}
    found: dict[int, dict[int, isl.Map]] = {}
    for total in totals:
        placed: list[tuple[int, isl.Map]] = []
        for a in accesses(scop):
            if a.stmt != total.name or a.write or a.accumulator:
                continue
            if not through and a.array not in by_array:
                return {}
            reached = _behind(scop, a.array, a.map) if through else {a.array: a.map}
            placed += [
                (p, via.apply_range(own[p])) for name, via in reached.items() for p in by_array.get(name, ())
            ]  # fmt: skip
        for p, via in placed:
            row = found.setdefault(p, {})
            for q, to in placed:
                relation = via.reverse().apply_range(to)
                row[q] = row[q].union(relation).coalesce() if q in row else relation.coalesce()
    return found


ZERO = -1  # the degree of 0, which is of any degree


def _linear(scop: Scop, by_array: Mapping[str, list[int]]) -> tuple[frozenset[int], ...]:
    """Each operand alone, and all together, if the results are linear in them."""
    floats = [a for a in by_array if scop.arrays[a].dtype.is_float]
    groups = [(a,) for a in floats] + ([tuple(floats)] if len(floats) > 1 else [])
    return tuple(frozenset(p for a in some for p in by_array[a]) for some in groups if _is_linear(scop, some))


def _is_linear(scop: Scop, arrays: Sequence[str]) -> bool:
    """Whether every result is a sum of products of which one factor is made of `arrays`."""
    degrees = {a: 1 if a in arrays else 0 for a in scop.args}
    for s in scop.statements.values():  # a statement reads what is written before it, or itself
        if s.predicate is not None or s.reduction not in (None, "+"):
            return False
        found = _degree(s.value, {**degrees, s.array: degrees.get(s.array, ZERO)})
        known = degrees.get(s.array, ZERO)
        if found is None or ZERO not in (found, known) and found != known:
            return False
        degrees[s.array] = max(found, known)
    return all(degrees.get(r) == 1 for r in scop.results)


def _degree(e: Expr, degrees: Mapping[str, int]) -> int | None:
    """How many factors of a value are of the arrays of degree 1; None: it is no sum of such products."""
    if isinstance(e, Const):
        return ZERO if e.value == 0 else 0
    if isinstance(e, Load):
        return degrees.get(e.array)
    if isinstance(e, Var):
        return 0
    below = [_degree(c, degrees) for c in e.children()]
    if any(d is None for d in below):
        return None
    known = [d for d in below if d is not None]
    if isinstance(e, Select):
        known = known[-2:]
    op = getattr(e, "op", None)
    if isinstance(e, Binary) and op == "*":
        return ZERO if ZERO in known else sum(known)
    if isinstance(e, Binary) and op == "/":
        return known[0] if known[1] == 0 else None
    if isinstance(e, Select) or (isinstance(e, Binary) and op in ("+", "-")):
        rest = {d for d in known if d != ZERO}
        return ZERO if not rest else rest.pop() if len(rest) == 1 else None
    if isinstance(e, Cast) and e.dtype.is_float:
        return known[0]
    if isinstance(e, Unary) and op == "-":
        return known[0]
    return 0 if all(d in (0, ZERO) for d in known) else None


def _skeleton(e: Expr) -> object:
    """An expression without subscripts and iterators."""
    if isinstance(e, Load):
        return ("load", e.array)
    if isinstance(e, Var):
        return "var"
    if isinstance(e, Select):
        return ("select", _skeleton(e.a), _skeleton(e.b))
    if isinstance(e, Const):
        return ("const", str(e.dtype), repr(e.value))
    name = getattr(e, "op", None) or getattr(e, "fn", None) or ""
    return (type(e).__name__, name, *(_skeleton(c) for c in e.children()))


def _by_place(e: Expr) -> bool:
    """Whether a value depends on where it is: an iterator is computed with, or chooses between two constants. (One
    that chooses between an element and something else shows in the relations.)"""
    if isinstance(e, Var):
        return True
    if isinstance(e, Load):
        return False
    if isinstance(e, Select):
        arms = (e.a, e.b)
        plain = not any(_has_load(a) for a in arms)
        return (plain and _by_place(e.cond)) or any(_by_place(a) for a in arms)
    return any(_by_place(c) for c in e.children())


def _has_load(e: Expr) -> bool:
    return isinstance(e, Load) or any(_has_load(c) for c in e.children())
