"""Which level of memory each tile of a contraction is meant for, so that what is in a level fits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from polyc.poly.records import dataclass
from polyc.poly.target import Target

Place = Literal["registers", "L1", "L2", "L3", "memory"]
PLACES: tuple[Place, ...] = ("registers", "L1", "L2", "L3", "memory")


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of an array that is used again: `bytes` of it at a time; `wanted`: the level that is near enough."""

    array: str
    bytes: int
    wanted: Place


@dataclass(frozen=True, slots=True)
class Placed:
    """A tile and the level that it is meant for."""

    tile: Tile
    level: Place

    def __str__(self) -> str:
        return f"{self.tile.array} {_size(self.tile.bytes)} in {self.level}"

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        return {"array": self.tile.array, "bytes": self.tile.bytes, "level": self.level}


def capacities(target: Target) -> dict[Place, int | None]:
    """Bytes of each level of one core; None: no end."""
    registers = target.vector_registers * target.vector_bytes
    return {"registers": registers, "L1": target.l1, "L2": target.l2, "L3": target.l3, "memory": None}


def place(tiles: Sequence[Tile], target: Target) -> list[Placed]:
    """Each tile in the level that it wants, or in the next one with room for it; those named first come first."""
    room = capacities(target)
    found = []
    for tile in tiles:
        level = next(p for p in PLACES[PLACES.index(tile.wanted) :] if _fits(room[p], tile.bytes))
        left = room[level]
        room[level] = None if left is None else left - tile.bytes
        found.append(Placed(tile, level))
    return found


def _fits(room: int | None, size: int) -> bool:
    return room is None or size <= room


def _size(n: int) -> str:
    return f"{n} B" if n < 1024 else f"{n / 1024:.0f} KiB" if n < 1 << 20 else f"{n / (1 << 20):.1f} MiB"
