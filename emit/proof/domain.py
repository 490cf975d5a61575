"""Do the loops run exactly the Scop's instances, each one once?"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.emit.loop_ir.loops import Function
from polyc.emit.proof.read_back import WrongLoops
from polyc.emit.proof.values import Executed
from polyc.poly.access import guard
from polyc.poly.cache import instances
from polyc.poly.forms.affine import set_space
from polyc.poly.scop import Scop, Statement


def prove_domain(scop: Scop, fn: Function, places: Sequence[Executed]) -> None:
    """Compare the instances that `places` run with the domains.

    Data-dependent loops must still have their static over-approximation. Instances whose
    condition is never true may be left out.

    Raises:
        WrongLoops: instances are missing, added or repeated; the text gives one of them.
    """
    for stmt in scop.statements.values():
        wanted = instances(scop)[stmt.name]
        done = isl.Set.empty(wanted.get_space())
        for x in places:
            if x.stmt is not stmt:
                continue
            here = x.relation
            image = here.range()
            if not here.is_injective() or not done.is_disjoint(image):
                raise WrongLoops("domain", f"{fn.name}: the loops run some instance of {stmt.name} twice")
            done = done.union(image)
        missing = _needed(scop, stmt, wanted).subtract(done)
        for what, wrong in (("miss", missing), ("wrongly run", done.subtract(wanted))):
            if not wrong.is_empty():
                raise WrongLoops("domain", f"{fn.name}: the loops {what} {wrong.sample_point()} of {stmt.name}")


def _needed(scop: Scop, stmt: Statement, wanted: isl.Set) -> isl.Set:
    """The instances whose predicate may hold."""
    if stmt.predicate is None:
        return wanted
    return guard(stmt.predicate, True, wanted, set_space(stmt.name, stmt.iters, scop.params))[0]
