"""Ways to damage a compiled directory: its bytes, its files, and what a correctly signed manifest says."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILES = ("manifest.json", "weights.bin", "code.bin", "host.bin", "sources.json")
VALUES = (0, -1, 1, 7, 64, 2**31, 2**63, -(2**40), 1.5, "", "x", "arena", None, [], [0], [1, 2], {}, True, "f64")


def bits_flipped(folder: Path, rng: random.Random) -> None:
    path = folder / rng.choice(FILES)
    data = bytearray(path.read_bytes() or b"\0")
    for _ in range(rng.choice((1, 1, 3, 16))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncated(folder: Path, rng: random.Random) -> None:
    path = folder / rng.choice(FILES)
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))] if data else b"\0")


def file_missing(folder: Path, rng: random.Random) -> None:
    (folder / rng.choice(FILES)).unlink()


def file_is_a_folder(folder: Path, rng: random.Random) -> None:
    path = folder / rng.choice(FILES)
    path.unlink()
    path.mkdir()


def files_exchanged(folder: Path, rng: random.Random) -> None:
    a, b = rng.sample(FILES, 2)
    (folder / a).rename(folder / "aside")
    (folder / b).rename(folder / a)
    (folder / "aside").rename(folder / b)


def text_replaced(folder: Path, rng: random.Random) -> None:
    path = folder / FILES[0]
    path.write_text(rng.choice(("", "{}", "[]", "null", "{" * 5000, '{"checksum": 1}', "\0" * 50, '"text"')))


def value_changed(folder: Path, rng: random.Random) -> None:
    """Any value of the manifest becomes another, and the manifest is signed again."""
    _edit(folder, rng, lambda holder, key: holder.__setitem__(key, rng.choice(VALUES)))


def value_nudged(folder: Path, rng: random.Random) -> None:
    """A number becomes a similar one: the wrong place, size, index."""

    def nudge(holder: Any, key: Any) -> None:
        old = holder[key]
        if isinstance(old, bool) or not isinstance(old, int):
            return _exchange(holder, key)
        holder[key] = old + rng.choice((-64, -1, 1, 64, 4096))

    _edit(folder, rng, nudge)


def entries_exchanged(folder: Path, rng: random.Random) -> None:
    """Two entries of a list change places: steps, arguments, slots."""

    def exchange(holder: Any, key: Any) -> None:
        value = holder[key]
        if isinstance(value, list) and len(value) > 1:
            i, j = rng.sample(range(len(value)), 2)
            value[i], value[j] = value[j], value[i]
        else:
            _exchange(holder, key)

    _edit(folder, rng, exchange, lists=True)


def entry_dropped(folder: Path, rng: random.Random) -> None:
    _edit(folder, rng, lambda holder, key: holder.pop(key))


def _exchange(holder: Any, key: Any) -> None:
    """With its neighbour."""
    if isinstance(holder, list) and len(holder) > 1:
        other = (key + 1) % len(holder)
        holder[key], holder[other] = holder[other], holder[key]
    else:
        holder[key] = None


def _edit(folder: Path, rng: random.Random, change: Callable[[Any, Any], Any], lists: bool = False) -> None:
    path = folder / FILES[0]
    data = json.loads(path.read_text())
    data.pop("checksum")
    places = [(h, k) for h, k in _places(data) if not lists or isinstance(h[k], list)]
    change(*rng.choice(places))
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    data["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(data, sort_keys=True, separators=(",", ":")))


def _places(data: Any) -> list[tuple[Any, Any]]:
    keys = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    found: list[tuple[Any, Any]] = []
    for key in list(keys):
        found.append((data, key))
        found += _places(data[key])
    return found


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (
    bits_flipped, truncated, file_missing, file_is_a_folder, files_exchanged, text_replaced,
    value_changed, value_changed, value_nudged, value_nudged, entries_exchanged, entry_dropped,
)  # fmt: skip


def damaged(source: Path, target: Path, seed: int) -> str:
    """A damaged copy of a compiled directory at `target`; what was done to it."""
    rng = random.Random(seed)
    shutil.copytree(source, target)
    damage = DAMAGES[seed % len(DAMAGES)]
    damage(target, rng)
    return damage.__name__
