"""What the kernels of a model assume of its symbolic sizes becomes guards."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyc.graph_driver.fusion.joined import Group
from polyc.graph_driver.graph.ir import Graph
from polyc.graph_driver.graph.size import Extent
from polyc.graph_driver.graph.symbols import GuardError, Symbols
from polyc.graph_driver.inference.symbolic import NotSymbolic
from polyc.poly.rewriting.specialise import fix_params


def assume(graph: Graph, groups: Sequence[Group]) -> None:
    """Add a guard for each constraint that a kernel's Scop has of its parameters.

    Raises:
        NotSymbolic: guards contradict one another.
    """
    if graph.symbols is not None:
        for group in groups:
            _assume(graph.symbols, group)


def _assume(symbols: Symbols, group: Group) -> None:
    if group.scop is None or not group.scop.params:
        return
    for part in fix_params(group.scop.context, dict(group.first_rows)).get_basic_sets():
        for c in part.get_constraints():
            size = _constraint(symbols, c)
            if isinstance(size, int):
                continue
            with symbols.at(f"{group.label} '{group.nodes[0].name}'"):
                try:
                    if c.is_equality():
                        symbols.require_equal(size, 0, "a kernel's sizes")
                    else:
                        symbols.require_at_least(size, 0, "a kernel's sizes")
                except GuardError as error:
                    raise NotSymbolic(f"{group.label} '{group.nodes[0].name}': {error}", None) from None


def _constraint(symbols: Symbols, c: isl.Constraint) -> Extent:
    """The left side of `size >= 0` or `size == 0`."""
    size: Extent = int(c.get_constant_val().to_python())
    for kind, term in ((isl.dim_type.param, _parameter), (isl.dim_type.div, _quotient)):
        for k in range(c.dim(kind)):
            factor = int(c.get_coefficient_val(kind, k).to_python())
            if factor:
                size = size + term(symbols, c, k) * factor
    return size


def _parameter(symbols: Symbols, of: isl.Constraint | isl.Aff, k: int) -> Extent:
    return symbols.formula(of.get_dim_name(isl.dim_type.param, k))


def _quotient(symbols: Symbols, of: isl.Constraint | isl.Aff, k: int) -> Extent:
    """What a division of isl stands for: the floor of a quotient of sizes."""
    above = of.get_div(k)
    below = above.get_denominator_val()
    size: Extent = int(above.get_constant_val().mul(below).to_python())
    for kind, term in ((isl.dim_type.param, _parameter), (isl.dim_type.div, _quotient)):
        for j in range(above.dim(kind)):
            factor = int(above.get_coefficient_val(kind, j).mul(below).to_python())
            if factor:
                size = size + term(symbols, above, j) * factor
    return size // int(below.to_python())
