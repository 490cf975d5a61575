"""What kernels keep for themselves, in the type that its values come from: memory for time.

A padded copy of an operand in f16 is f32 by default: the loops that read each of its elements many times widen it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polyc.graph_driver.fusion.joined import Group, text_of
from polyc.poly.rewriting.narrow import stored_narrow
from polyc.poly.scop import Scop


def store_narrow(found: Sequence[Group]) -> list[Group]:
    """Every group with its local arrays as narrow as their values (`polyc.poly.rewriting.narrow`)."""
    known: dict[str, tuple[Scop, str, str] | None] = {}  # by key: equal kernels become equal ones
    return [_stored(g, known) for g in found]


def _stored(group: Group, known: dict[str, tuple[Scop, str, str] | None]) -> Group:
    if group.scop is None:
        return group
    if group.key not in known:
        scop = stored_narrow(group.scop)
        known[group.key] = None if scop is group.scop else (scop, *text_of(scop))
    made = known[group.key]
    return group if made is None else replace(group, scop=made[0], text=made[1], key=made[2])
