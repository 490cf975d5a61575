"""`polyc cache`: what the disk cache holds, how much room it takes; clear it, look for damage; keys of a shared one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from polyc.emit import cache, signatures
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.known import inventory
from polyc.poly.errors import BuildError, OptionError

HOURS = 48
"""Up to so many hours ago something was used hours ago, then days."""


def cache_command(arguments: argparse.Namespace) -> int:
    """List, size, clear or verify; 1 where `verify` has found damage. Raises `OptionError`, `BuildError`."""
    if arguments.only and arguments.action != "clear":
        raise OptionError(f"--only says what clear removes; it has no effect for {arguments.action}")
    with_key = arguments.action in ("key", "sign", "trust")
    if with_key != (arguments.key is not None):
        raise OptionError(f"polyc cache {arguments.action} takes {'the file of a key' if with_key else 'no file'}")
    actions = {
        "list": _list, "size": _size, "clear": _clear, "verify": _verify, "key": _key, "sign": _sign, "trust": _trust,
    }  # fmt: skip
    return actions[arguments.action](arguments)


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


def _key(arguments: argparse.Namespace) -> int:
    public = signatures.new_key(arguments.key)
    _say(arguments, f"wrote    {arguments.key} (private) and {public}", key=str(arguments.key), public=str(public))
    return 0


def _trust(arguments: argparse.Namespace) -> int:
    name = signatures.trust(arguments.key)
    text = f"trusted  {name} in {signatures.trust_folder()}; entries that no trusted key has signed are refused"
    _say(arguments, text, key=name, folder=str(signatures.trust_folder()))
    return 0


def _sign(arguments: argparse.Namespace) -> int:
    """Sign what is whole in the shared cache; 1 where something is damaged."""
    keys = signatures.Keys({}, signatures.private_key(arguments.key))
    store = cache.shared()
    if store is None:
        raise BuildError("; ".join(cache.notes()) or "POLYC_CACHE names no shared cache (FOLDER,ADDRESS)")
    store.keys = keys
    signed, damaged = 0, []
    try:
        for name in store.names():
            raw = store.read(name)
            if raw is not None and cache.unsealed(raw) is None:
                damaged.append(name)
            elif raw is not None:
                signed += store.sign(name)
    except OSError as error:
        raise BuildError(f"the shared cache {store.address}: {error.strerror or error}") from None
    lines = [f"signed   {signed} entries of {store.address} by {keys.own}", *(f"damaged  {n}" for n in damaged)]
    _say(arguments, "\n".join(lines), signed=signed, damaged=damaged, key=keys.own)
    return 1 if damaged else 0


def _say(arguments: argparse.Namespace, text: str, **data: object) -> None:
    print(json.dumps(data, indent=2, sort_keys=True) if arguments.json else text)
