"""A part of a Scop: the instances that make some elements of its results from some elements of its arguments.

    D[c] += G[n, c] * X[n, c]   with rows 4 to 7 of G and X   ->   D[c] += G'[n, c] * X'[n, c]   for 0 <= n < 4

Instances are chosen by what they read and write alone. What cannot be had follows the reads forwards: an instance that
reads an element outside the parts cannot run, and an element that such an instance writes is missing to all who read
it. What is wanted follows them backwards from the results. A part exists if nothing that is wanted cannot run. A
result may also be asked for as a partial sum: of its updates those run that can, and `is_shared_out` says whether
several parts have each of them exactly once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import islpy as isl

from polyc.poly.access import accesses, array_elements
from polyc.poly.adjoint.trees import in_place
from polyc.poly.cache import per_scop
from polyc.poly.dtypes import i64
from polyc.poly.errors import ScopError
from polyc.poly.expr import Binary, Expr, Load, Var, const_int, rewrite
from polyc.poly.forms.affine import NotAffine, set_space, to_pw_aff
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.forms.ranges import smallest, value_range
from polyc.poly.records import dataclass
from polyc.poly.rewriting.specialise import fold
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Band, Filter, Leaf, Node

Box = Sequence[tuple[int, int]]
"""Of each dimension the first index and the one behind the last."""
ROUNDS = 64
"""How often what is missing, or wanted, may be handed on from array to array."""
IDENTITY = {"+": 0.0, "max": float("-inf"), "min": float("inf")}
"""Partial results of these reductions are reduced to the whole one; updates begin with this number."""


@dataclass(frozen=True, eq=False)
class Part:
    """`runs`: by statement the instances that run. `boxes`: of arguments and results the elements that there are."""

    runs: Mapping[str, isl.Set]
    boxes: Mapping[str, Box]


def chosen(scop: Scop, boxes: Mapping[str, Box], sums: Collection[str] = ()) -> Part:
    """The instances that make the elements `boxes` of the results from the elements `boxes` of the arguments.

    Args:
        scop: a Scop whose sizes are numbers.
        boxes: by argument or result; those that are not named are whole. Of an argument that is updated in place these
            are the elements that there are and that are wanted.
        sums: results that are wanted as partial sums (or maxima, minima); they are whole in `boxes`.

    Raises:
        ScopError: something that is wanted needs elements that there are not, or the Scop is of a kind that has no
            parts; the line says which.
    """
    _check(scop, sums)
    space = _elements(scop)
    have = {n: space[n].intersect(_box(scop, n, b)) for n, b in boxes.items()}
    never = _missing(scop, {n: space[n].subtract(h) for n, h in have.items() if n in scop.args}, sums)
    asked = [n for n, a in scop.arrays.items() if a.kind in ("out", "inout")]
    runs = _wanted(scop, {n: have.get(n, space[n]) for n in asked}, never, sums)
    for name, some in runs.items():
        if name in never and not some.is_disjoint(never[name]):
            raise ScopError(f"statement {name} needs elements that are not in the part")
    for a in accesses(scop):
        if a.write and a.array in have and a.stmt in runs:
            if not a.map.intersect_domain(runs[a.stmt]).range().is_subset(have[a.array]):
                raise ScopError(f"statement {a.stmt} may write '{a.array}' outside the part")
    return Part(runs, dict(boxes))


def is_shared_out(scop: Scop, parts: Sequence[Part], sums: Collection[str]) -> bool:
    """Whether each update of the partial sums runs in exactly one of the parts."""
    for s in scop.statements.values():
        if s.array in sums and s.reduction is not None:
            each = [p.runs[s.name] for p in parts if s.name in p.runs]
            together = isl.Set.empty(s.domain.get_space())
            for some in each:
                together = together.union(some)
            if not together.is_equal(s.domain) or not all(a.is_disjoint(b) for a, b in combinations(each, 2)):
                return False
    return True


def sums_of(scop: Scop) -> dict[str, str]:
    """The results that are nothing but one kind of reduction, from its identity on, with that kind: they may be asked
    for as partial sums."""
    found = {}
    for name in scop.results if scop.reassociate else ():
        writers = [s for s in scop.statements.values() if s.array == name]
        kinds = {s.reduction for s in writers if s.reduction is not None}
        kind = next(iter(kinds)) if len(kinds) == 1 else ""
        starts = [s for s in writers if s.reduction is None]
        read = any(a.array == name and not a.write and not a.accumulator for a in accesses(scop))
        if kind in IDENTITY and not read and all(getattr(s.value, "value", None) == IDENTITY[kind] for s in starts):
            found[name] = kind
    return found


def part_of(scop: Scop, part: Part) -> Scop:
    """The Scop of a part, whose arrays and loops begin at 0: parts that are alike but for their place are equal, unless
    values depend on the place."""
    narrow = {n: replace(scop.statements[n], domain=d) for n, d in part.runs.items()}
    tree = in_place(scop.tree, {n: [s] for n, s in narrow.items()}, str)
    begins = {n: [b for b, _ in box] for n, box in part.boxes.items()}
    shapes = {n: [e - b for b, e in box] for n, box in part.boxes.items()}
    kept = {*scop.args, *scop.results}
    for name, array in scop.arrays.items():
        if array.kind == "local":
            used = touched(scop, name, part.runs)
            if used is not None:
                kept.add(name)
                begins[name], shapes[name] = [b for b, _ in used], [e - b for b, e in used]
    shifts = {n: [smallest(d, k) or 0 for k in range(len(narrow[n].iters))] for n, d in part.runs.items()}
    statements = {n: _moved(narrow[n], shifts[n], begins) for n in narrow}
    arrays = {
        n: replace(a, shape=tuple(map(const_int, shapes[n]))) if n in shapes else a
        for n, a in scop.arrays.items()
        if n in kept
    }
    names = {n: _shift(s, shifts[n]) for n, s in narrow.items()}
    made = Leaf() if tree is None else _tree(tree, {n: s.domain for n, s in narrow.items()}, names)
    return replace(scop, arrays=arrays, statements=statements, tree=made, origin=None)


# ---- which instances ----------------------------------------------------------------------------


def _check(scop: Scop, sums: Collection[str]) -> None:
    if scop.params:
        raise ScopError(f"a part of {scop.name} needs sizes that are numbers")
    if any(s.dynamic for s in scop.statements.values()):
        raise ScopError(f"loops of {scop.name} end where data say")
    known = sums_of(scop) if sums else {}
    for name in sums:
        if name not in known:
            raise ScopError(f"'{name}' is no plain sum")


def _missing(scop: Scop, gone: Mapping[str, isl.Set], sums: Collection[str]) -> dict[str, isl.Set]:
    """By statement the instances that cannot run without the elements `gone`."""
    readers = [(a.array, a.stmt, a.map.reverse()) for a in accesses(scop) if not a.write]
    makes = [(a.stmt, a.array, a.map) for a in accesses(scop) if a.write and a.array not in sums]
    never: dict[str, isl.Set] = {}
    new = {n: g for n, g in gone.items() if not g.is_empty()}
    missing = dict(new)
    for _ in range(ROUNDS):
        if not new:
            return never
        new = _reached(_reached(new, readers, never), makes, missing)
    raise ScopError(f"values of {scop.name} are handed on too often")


def _wanted(
    scop: Scop, results: Mapping[str, isl.Set], never: Mapping[str, isl.Set], sums: Collection[str]
) -> dict[str, isl.Set]:
    """By statement the instances that make the elements of the results, and what these read; of partial sums only
    those that can run."""
    updates = {s.name: never[s.name] for s in scop.statements.values() if s.array in sums and s.name in never}
    makers = [(a.array, a.stmt, a.map.reverse(), updates.get(a.stmt)) for a in accesses(scop) if a.write]
    cut = [(x, y, m if without is None else m.subtract_range(without)) for x, y, m, without in makers]
    reads = [(a.stmt, a.array, a.map) for a in accesses(scop) if not a.write]
    wanted, runs, new = dict(results), dict[str, isl.Set](), dict(results)
    for _ in range(ROUNDS):
        if not new:
            return runs
        new = _reached(_reached(new, cut, runs), reads, wanted)
    raise ScopError(f"values of {scop.name} are handed on too often")


def _reached(
    new: Mapping[str, isl.Set], maps: Sequence[tuple[str, str, isl.Map]], known: dict[str, isl.Set]
) -> dict[str, isl.Set]:
    """Where maps (source, target, relation) lead from `new`, but for what is known; it is known then."""
    found: dict[str, isl.Set] = {}
    for source, target, relation in maps:
        if source in new:
            reached = new[source].apply(relation)
            if target in known:
                reached = reached.subtract(known[target])
            if not reached.is_empty():
                found[target] = reached.union(found[target]).coalesce() if target in found else reached.coalesce()
                known[target] = known[target].union(reached).coalesce() if target in known else reached.coalesce()
    return found


@per_scop
def _elements(scop: Scop) -> Mapping[str, isl.Set]:
    return {n: array_elements(a, ()) for n, a in scop.arrays.items()}


def _box(scop: Scop, name: str, box: Box) -> isl.Set:
    found = isl.Set.universe(_elements(scop)[name].get_space())
    for k, (begin, end) in enumerate(box):
        found = found.lower_bound_val(isl.dim_type.set, k, isl.Val(begin))
        found = found.upper_bound_val(isl.dim_type.set, k, isl.Val(end - 1))
    return found


def touched(scop: Scop, name: str, runs: Mapping[str, isl.Set]) -> list[tuple[int, int]] | None:
    """The box of the elements of an array that the instances touch; None: there is none."""
    found: isl.Set | None = None
    for a in accesses(scop):
        if a.array == name and a.stmt in runs:
            own = a.map.intersect_domain(runs[a.stmt]).range().intersect(_elements(scop)[name])
            found = own if found is None else found.union(own)
    if found is None or found.is_empty():
        return None
    rank = found.dim(isl.dim_type.set)
    ends = [(found.dim_min_val(k).to_python(), found.dim_max_val(k).to_python()) for k in range(rank)]
    return [(int(low), int(high) + 1) for low, high in ends]


# ---- from 0 on ----------------------------------------------------------------------------------


def _shift(s: Statement, by: Sequence[int]) -> isl.MultiAff:
    """From instances counted from 0 to those of the whole Scop."""
    old = ", ".join(f"{i} + {n}" for i, n in zip(s.iters, by, strict=True))
    return isl.MultiAff(f"{{ {s.name}[{', '.join(s.iters)}] -> {s.name}[{old}] }}")


def _named(domain: isl.Set, s: Statement) -> isl.Set:
    for k, name in enumerate(s.iters):
        domain = domain.set_dim_name(isl.dim_type.set, k, name)
    return domain.set_tuple_name(s.name)


def _moved(s: Statement, by: Sequence[int], begins: Mapping[str, Sequence[int]]) -> Statement:
    """The statement with its iterators counted from `by`, its subscripts from the begin of each array."""
    to_old = _shift(s, by)
    domain = _named(_named(s.domain, s).preimage_multi_aff(to_old).coalesce(), s)
    values: dict[str, Expr] = {i: Binary("+", Var(i), const_int(n), i64) for i, n in zip(s.iters, by) if n}
    space = set_space(s.name, s.iters, ())
    everywhere = isl.Set.universe(domain.get_space())

    def placed(e: Expr) -> Expr:
        return values.get(e.name, e) if isinstance(e, Var) else e

    def subscript(e: Expr, begin: int) -> Expr:
        """One whose iterators are counted from `by` already, from the begin of its dimension on."""
        whole = Binary("-", e, const_int(begin), i64) if begin else e
        try:
            value = to_pw_aff(whole, space)
            # A loop that runs once stays a loop's name: schedules are chosen by what subscripts move with.
            return function_expr(value, s.iters, everywhere if _is_plain(value) else domain)
        except NotAffine:
            return whole

    def load(e: Expr) -> Expr:
        e = placed(e)
        if isinstance(e, Load):
            start = begins.get(e.array, [0] * len(e.index))
            return replace(e, index=tuple(subscript(x, b) for x, b in zip(e.index, start, strict=True)))
        return e

    def both(e: Expr) -> Expr:
        return fold(rewrite(e, load))

    target = both(s.target)
    assert isinstance(target, Load)
    return replace(
        s, domain=domain, index=target.index, value=both(s.value),
        predicate=None if s.predicate is None else both(s.predicate),
    )  # fmt: skip


def _is_plain(value: isl.PwAff) -> bool:
    """Whether it is one sum of iterators everywhere, without divisions."""
    pieces = value.get_pieces()
    return len(pieces) == 1 and pieces[0][1].dim(isl.dim_type.div) == 0


def _tree(node: Node, domains: Mapping[str, isl.Set], to_old: Mapping[str, isl.MultiAff]) -> Node:
    """The tree over instances counted from 0; each loop begins at 0, too."""
    if isinstance(node, Filter):
        inner = {n: domains[n].intersect(d) for n, d in node.domain.items()}
        moved = {n: d.preimage_multi_aff(to_old[n]).coalesce() for n, d in node.domain.items()}
        return Filter(moved, _tree(node.child, inner, to_old))
    if isinstance(node, Band):
        members = []
        for m in node.members:
            first = min((value_range(t, domains[n]) or (0, 0))[0] for n, t in m.schedule.items())
            times = {n: t.pullback_multi_aff(to_old[n]) for n, t in m.schedule.items()}
            members.append(replace(m, schedule={n: t.add_constant_val(isl.Val(-first)) for n, t in times.items()}))
        return Band(tuple(members), _tree(node.child, domains, to_old), node.permutable)
    children = tuple(_tree(c, domains, to_old) for c in node.children())
    return node.with_children(children) if children else node
