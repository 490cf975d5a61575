"""The code of one Scop, as a back end makes it and as it travels between processes and the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from polyc.poly.records import dataclass
from polyc.poly.spans import Span


@dataclass(frozen=True)
class Compiled:
    """`image` is what the back end runs: machine code, text, data; only it reads these bytes.

    `order` names the Scop's arrays in ABI order, then `scratch` (name, and bytes or their formula as
    `json_io.dump_expr` writes it): memory that the code needs while it runs. `seconds` by stage; `spans`: what was done
    when, if it was done now. `gaps`: how far apart pairs of its arrays must lie if they may overlap
    (`polyc.emit.loop_ir.overlap.gaps`); all other pairs have no byte in common.
    """

    symbol: str
    order: tuple[str, ...]
    image: bytes
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    cache_hit: bool = False
    scratch: tuple[tuple[str, int | str], ...] = ()
    spans: tuple[Span, ...] = ()
    gaps: tuple[tuple[str, str, int, int], ...] = ()

    @property
    def abi(self) -> tuple[str, tuple[str, ...], tuple[tuple[str, int | str], ...]]:
        """What a plan must know to call it: symbol, order, scratch."""
        return self.symbol, self.order, self.scratch
