"""The generated texts for the page: lines, and the tree nodes and statements that they come from.

Keys name what can be highlighted: `loop:NAME` (a loop of the schedule tree), `stmt:NAME` (a
statement), `copy:BUFFER` (a promotion).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polyc.emit.listing import Listing, Traced
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, Launch, Origin, Stmt, Store, walk

PANES = {  # title, and the language whose words are coloured
    "c": ("C", "c"), "llvm": ("LLVM IR", "llvm"), "asm": ("Assembly", "asm"),
    "cuda": ("CUDA", "c"), "opencl": ("OpenCL", "c"),
}  # fmt: skip
LONGEST = 20_000  # lines of one text; the page says where it was cut


def code_data(fn: Function, listing: Listing, loops: frozenset[str]) -> dict[str, Any]:
    """`keys`: table of keys; `loops`: lines `[text, own keys, keys around]`; the other `panes` (name, title,
    language): lines `[text, line of loops]` (0: none). `loops` are the names in the schedule tree."""
    table: dict[str, int] = {}

    def numbers(keys: list[str]) -> list[int]:
        return [table.setdefault(k, len(table)) for k in keys]

    facts = dict(_facts(fn.body, (), loops))
    hub: list[list[Any]] = []
    for line in listing.loops:
        own, around = facts.get(id(line.stmt), ([], []))
        hub.append([line.text, numbers(own), numbers(around)])
    texts = listing.texts
    return {
        "panes": [["loops", "Loops", "python"], *([name, *PANES[name]] for name in texts)],
        "loops": hub[:LONGEST],
        **{name: _plain(lines) for name, lines in texts.items()},
        "cut": [n for n, lines in (("loops", listing.loops), *texts.items()) if len(lines) > LONGEST],
        "keys": list(table),
    }


def _plain(lines: tuple[Traced, ...]) -> list[list[Any]]:
    return [[line.text, line.origin] for line in lines[:LONGEST]]


def _facts(
    s: Stmt, around: tuple[str, ...], loops: frozenset[str]
) -> Iterator[tuple[int, tuple[list[str], list[str]]]]:
    """For every statement of the loop IR: the keys that it stands for, and those of the loops around it."""
    origins = [x.origin for x in walk(s) if isinstance(x, Store) and x.origin is not None]
    common = _common([o.loops for o in origins]) or around
    path = [f"loop:{name}" for name in common if name in loops]
    if isinstance(s, Store):
        yield id(s), (_ends(origins), path)
    elif isinstance(s, Launch):  # it stands for the loops that became its blocks and threads
        yield id(s), (path or _ends(origins), [f"loop:{n}" for n in around if n in loops])
        around = common
    elif isinstance(s, For):
        inside = around
        if s.loop in loops:
            inside = common[: common.index(s.loop) + 1] if s.loop in common else (*around, s.loop)
            outer = inside[:-1]
            yield id(s), ([f"loop:{s.loop}"], [f"loop:{n}" for n in outer if n in loops])
        else:  # a loop of a copy
            yield id(s), (_ends(origins), path)
        around = inside
    elif isinstance(s, Alloc) and s.buffer.promoted:
        yield id(s), ([f"copy:{s.buffer.promoted}"], [f"loop:{n}" for n in around if n in loops])
    elif not isinstance(s, Block):
        yield id(s), (_ends(origins), path)
    for body in s.bodies():
        yield from _facts(body, around, loops)


def _ends(origins: list[Origin]) -> list[str]:
    """The statements and promotions that code is for, each once."""
    keys = (f"stmt:{o.statement}" if o.statement is not None else f"copy:{o.buffer}" for o in origins)
    return list(dict.fromkeys(keys))


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The longest common beginning."""
    if not paths:
        return ()
    shortest = min(paths, key=len)
    for k, name in enumerate(shortest):
        if any(p[k] != name for p in paths):
            return shortest[:k]
    return shortest
