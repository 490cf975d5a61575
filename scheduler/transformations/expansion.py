"""Array expansion: a local array gets a copy for each iteration of a loop.

    r: (p: t[p] = f(r, p); p: A[r, p] = t[p])   ->   r: (p: t[r, p] = f(r, p); p: A[r, p] = t[r, p])

What one iteration writes over what another has read then keeps nothing in order any more (Feautrier, "Array expansion",
ICS 1988). It is right where every value is read in the iteration that has written it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import islpy as isl

from polyc.poly.access import accesses
from polyc.poly.dependences import value_flow_among
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr, Load, rewrite
from polyc.poly.forms.affine_expr import function_expr
from polyc.poly.records import replace
from polyc.poly.scop import Scop, Statement
from polyc.poly.tree import Node, promotions_below
from polyc.scheduler.transformations.added import minus, value_range
from polyc.scheduler.transformations.tree_edit import locate, reaching, refuse_dynamic


def expand(scop: Scop, tree: Node, array: str, loop: str) -> Scop:
    """`scop` with `array` as one for each iteration of `loop`, which is around all that touches it.

    Raises:
        ScheduleError: no local array, one that is used elsewhere, or whose values are read in other iterations.
    """
    if array not in scop.arrays or scop.arrays[array].kind != "local":
        known = ", ".join(a.name for a in scop.arrays.values() if a.kind == "local")
        raise ScheduleError(f"'{array}' is no local array (those are: {known or 'none'})")
    spot = locate(tree, loop)
    refuse_dynamic(scop, spot.member, "expand an array over")
    if any(n.array == array for n in promotions_below(tree)):
        raise ScheduleError(f"array '{array}' is promoted already: expand first")
    touching = [a for a in accesses(scop) if a.array == array]
    active, times = reaching(scop, spot.path), spot.member.schedule
    if not touching:
        raise ScheduleError(f"nothing touches '{array}'")
    for name in dict.fromkeys(a.stmt for a in touching):
        whole = name in times and scop.statements[name].domain.intersect_params(scop.context).is_subset(active[name])
        if not whole:
            raise ScheduleError(f"{name} uses '{array}' outside of loop '{loop}'")
    _check_flow(scop, array, times, loop)
    ranges = [isl.Map.from_pw_aff(times[n]).intersect_domain(active[n]).range() for n in {a.stmt for a in touching}]
    low, extent = value_range(scop, reduce(lambda a, b: a.union(b), ranges), f"loop '{loop}'")
    old = scop.arrays[array]
    new = replace(old, shape=(extent, *old.shape), expanded=old.expanded + 1)
    statements = {
        n: expanded(s, array, minus(function_expr(times[n], s.iters, active[n]), low)) if n in times else s
        for n, s in scop.statements.items()
    }
    return replace(scop, arrays={**scop.arrays, array: new}, statements=statements)


def _check_flow(scop: Scop, array: str, times: Mapping[str, isl.PwAff], loop: str) -> None:
    """Every value is read in the iteration that has written it, or it is a `ScheduleError`."""
    found: list[isl.Map] = []
    value_flow_among(scop, [a for a in accesses(scop) if a.array == array], "RAW").foreach_map(found.append)
    for flow in found:
        writer, reader = (flow.get_tuple_name(k) for k in (isl.dim_type.in_, isl.dim_type.out))
        if not flow.is_subset(times[writer].eq_map(times[reader])):
            raise ScheduleError(
                f"cannot expand '{array}' over loop '{loop}': in one iteration {reader} reads what {writer} has "
                "written in another"
            )


def expanded(s: Statement, array: str, copy: Expr) -> Statement:
    """The statement with a subscript more, in front, wherever it touches the array."""

    def moved(e: Expr) -> Expr:
        return Load(array, (copy, *e.index), e.dtype, e.span) if isinstance(e, Load) and e.array == array else e

    index = tuple(rewrite(e, moved) for e in s.index)
    return replace(
        s, value=rewrite(s.value, moved), index=(copy, *index) if s.array == array else index,
        predicate=None if s.predicate is None else rewrite(s.predicate, moved),
        dynamic=tuple(replace(d, lo=rewrite(d.lo, moved), hi=rewrite(d.hi, moved)) for d in s.dynamic),
    )  # fmt: skip
