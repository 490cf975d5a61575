"""Values that are computed again where no tape has room for them: in loops that data end.

for j in range(K[0]):            the adjoint of the second statement needs y, of which each iteration has another:
    y = R[0] + j * E[0]          R[0] + j * E[0]
    s += X[j] * sin(y)
"""

from __future__ import annotations

import islpy as isl

from polyc.poly.access import accesses, element_map
from polyc.poly.adjoint.tape import runs_with
from polyc.poly.expr import Load, loads
from polyc.poly.forms.affine import set_space
from polyc.poly.ordering.order import in_order
from polyc.poly.scop import Scop, Statement


def maker_of(scop: Scop, s: Statement, load: Load, where: isl.Set) -> Statement | None:
    """The statement that has made what the instances `where` of `s` read by `load`: each one in the same iteration of
    the same loops, and nothing writes the element between them. None where there is no such statement."""
    for w in scop.statements.values():
        if w is s or w.array != load.array or w.index != load.index or w.predicate is not None:
            continue
        if any(x.array == w.array for x in loads(w.value)) or not runs_with(scop, w, s):
            continue
        here = where.set_tuple_name(w.name)
        if here.is_subset(w.domain.intersect_params(scop.context)) and _last(scop, w, s, load, where):
            return w
    return None


def _last(scop: Scop, w: Statement, s: Statement, load: Load, where: isl.Set) -> bool:
    """Whether `w` writes before `s` reads in an iteration, and nothing that may be the element in between."""
    own = isl.Map.identity(where.get_space().map_from_set()).intersect_domain(where)
    own = own.set_tuple_name(isl.dim_type.in_, w.name)
    first = in_order(scop, {(w.name, s.name): own})
    if not own.is_subset(first.get((w.name, s.name), isl.Map.empty(own.get_space()))):
        return False
    array = scop.arrays[load.array]
    read = element_map(load, array, set_space(s.name, s.iters, scop.params))[0].intersect_domain(where)
    made = element_map(w.target, array, set_space(w.name, w.iters, scop.params))[0]
    made = made.intersect_domain(where.set_tuple_name(w.name))
    for t in accesses(scop):
        if t.write and t.array == load.array:
            later = in_order(scop, {(w.name, t.stmt): made.apply_range(t.map.reverse())}).get((w.name, t.stmt))
            sooner = in_order(scop, {(t.stmt, s.name): t.map.apply_range(read.reverse())}).get((t.stmt, s.name))
            if later is not None and sooner is not None and not later.apply_range(sooner).is_disjoint(own):
                return False
    return True
