"""All kinds of cases by name. A file of draws has a table `KINDS`; it is added here."""

from __future__ import annotations

from random import Random

from benchmarks.cases import Case
from benchmarks.hunting import convolutions, operators, products
from benchmarks.hunting.draws import Draw

KINDS: dict[str, Draw] = {**convolutions.KINDS, **products.KINDS, **operators.KINDS}


def case_of(kind: str, seed: int, number: int) -> Case:
    """The same case for the same three, whatever else is drawn."""
    rng = Random(f"{kind} {seed} {number}")
    while True:
        case = KINDS[kind](rng)
        if case is not None:
            return case
