"""`polyc cache`: what the disk cache holds, how much room it takes; clear it, look for damage."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.known import inventory
from polyc.poly.errors import OptionError

HOURS = 48
"""Up to so many hours ago something was used hours ago, then days."""


def cache_command(arguments: argparse.Namespace) -> int:
    """List, size, clear or verify; 1 where `verify` has found damage. Raises `OptionError`, `BuildError`."""
    if arguments.only and arguments.action != "clear":
        raise OptionError(f"--only says what clear removes; it has no effect for {arguments.action}")
    return {"list": _list, "size": _size, "clear": _clear, "verify": _verify}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> int:
    found = inventory.programs()
    if arguments.json:
        print(json.dumps([p.data() for p in found], indent=2, sort_keys=True))
        return 0
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("model", "file", "target")
    for heading in ("size", "made", "in", "used"):
        table.add_column(heading, no_wrap=True)
    for p in found:
        used = f"{p.unused_hours:.0f} h ago" if p.unused_hours <= HOURS else f"{p.unused_hours / 24:.0f} days ago"
        texts = (p.name, Path(p.path).name, p.target, human(p.bytes), p.made, f"{p.seconds:.1f} s", used)
        table.add_row(*map(escape, texts))
    Console().print(table)
    return 0


def _size(arguments: argparse.Namespace) -> int:
    found = inventory.sizes()
    if arguments.json:
        print(json.dumps(found, indent=2, sort_keys=True))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("", "number", "size", "at most", title=str(found["folder"]), title_justify="left")
    for label, kind in (("finished programs", "programs"), ("kernels", "kernels"), ("tuning", "tuning")):
        row = found[kind]
        table.add_row(label, str(row["number"]), human(row["bytes"]), "" if not row["limit"] else human(row["limit"]))
    Console().print(table)
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    freed = inventory.clear(arguments.only)
    print(json.dumps({"bytes": freed}) if arguments.json else f"removed  {human(freed)}")
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    count, damaged = inventory.verify()
    if arguments.json:
        print(json.dumps({"entries": count, "damaged": damaged}, indent=2))
    else:
        print(
            "\n".join(
                [f"read     {count} entries, {len(damaged) or 'none'} damaged", *map("removed  {}".format, damaged)]
            )
        )
    return 1 if damaged else 0
