"""Schedule programs: what to do with a kind of nest, as functions from a schedule to a schedule by public steps.

`tile_product`, `share_blocks`, `rows_per_block`, `scan_panels`, `keep_rows` and `time_tiles` are for everybody: they
take names of loops, statements and arrays, and numbers. The strategies use the same programs with what they have
matched as plain data (`TiledProduct`, `SharedBlocks`); nothing in them decides anything.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyc.scheduler.programs.blocks import share_blocks
    from polyc.scheduler.programs.product import tile_product
    from polyc.scheduler.programs.rows import keep_rows, rows_per_block
    from polyc.scheduler.programs.scans import scan_panels
    from polyc.scheduler.programs.sweeps import time_tiles

__all__ = ["keep_rows", "rows_per_block", "scan_panels", "share_blocks", "tile_product", "time_tiles"]

_MODULE_OF = {
    "keep_rows": "rows",
    "rows_per_block": "rows",
    "scan_panels": "scans",
    "share_blocks": "blocks",
    "tile_product": "product",
    "time_tiles": "sweeps",
}


def __getattr__(name: str) -> Any:
    """A program, imported now: the strategies import the modules below, and `product` imports their matches."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'polyc.scheduler.programs' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return found
