"""Regions of scalars as expressions that loops apply."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyc.frontend_dsl.library import stablehlo_scalars
from polyc.frontend_dsl.library.applied import Term
from polyc.graph_driver.stablehlo.program import Operation, Program, Region

LARGEST = 500
"""Nodes of an expression: one that several operations read is there for each."""


def terms_of(program: Program, region: Region) -> list[Term]:
    """What a region returns, as expressions of its arguments.

    Raises:
        ModelError: an operation of it has no scalar function, reads a value from outside, or is too large.
    """
    found = {name: Term(place=k) for k, (name, _) in enumerate(region.arguments)}
    sizes = dict.fromkeys(found, 1)
    types = {name: t for name, t in region.arguments}
    for o in region.operations:
        for name in o.operands:
            if name not in found:
                raise program.refusal(o.line, f"{o.name} reads %{name} from outside its region")
        if o.name in ("stablehlo.return", "func.return", "return"):
            return [found[n] for n in o.operands]
        sizes[o.results[0]] = 1 + sum(sizes[n] for n in o.operands)
        if sizes[o.results[0]] > LARGEST:
            raise program.refusal(o.line, "the region is too large for an expression")
        first = types[o.operands[0]] if o.operands else o.types[0]
        if any(t.shape for t in (first, o.types[0])):
            raise program.refusal(o.line, f"{o.name} of more than scalars in a region")
        found[o.results[0]] = _term(program, o, [found[n] for n in o.operands], program.element(first, o.line))
        types[o.results[0]] = o.types[0]
    raise program.refusal(region.operations[-1].line if region.operations else 1, "a region returns nothing")


def _term(program: Program, o: Operation, operands: Sequence[Term], dtype: object) -> Term:
    name = o.name.partition(".")[2]
    result = program.element(o.types[0], o.line)
    if name == "constant":
        return Term(number=np.asarray(o.attributes["value"]).reshape(())[()])
    if name == "convert":
        return operands[0] if dtype == result else Term(stablehlo_scalars.conversion(result), tuple(operands))
    if name == "compare":
        return Term(stablehlo_scalars.COMPARISONS[direction(o)], tuple(operands))
    if name == "reshape":
        return operands[0]
    function = stablehlo_scalars.of(name, result if name in ("select", "clamp") else dtype)  # type: ignore[arg-type]
    if function is None:
        raise program.refusal(o.line, f"{o.name} of {dtype} in a region is not supported")
    return Term(function, tuple(operands))


def direction(o: Operation) -> str:
    """`EQ`, `LT`, ... of a comparison, in either form."""
    found = o.attributes.get("comparison_direction")
    if found is not None:
        return str(found[-1])
    return str(o.attributes["words"][0])
