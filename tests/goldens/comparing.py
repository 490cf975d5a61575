"""Makes the programs of a family on a target and holds them against their goldens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from .frozen import Made, make
from .store import difference, read, sliced, stem, write
from .subjects import Subject, groups, library, networks, not_fetched, polybench

FAMILIES = ("library", "polybench", "networks")


def subjects(family: str, target: str, pattern: str) -> Iterator[Subject]:
    """The programs of one family whose names (of networks: the network's) match."""
    if family == "networks":
        found = (path for path in networks() if re.search(pattern, path.stem))
        yield from (s for path in found for s in groups(path, target.split("/")[0]))
    else:
        yield from (s for s in {"library": library, "polybench": polybench}[family]() if re.search(pattern, s.name))


def compared(
    family: str,
    target: str,
    pattern: str = "",
    only_slice: bool = False,
    update: bool = False,
    dump: Path | None = None,
) -> list[str]:
    """What differs from the goldens, an entry a program; `update` writes the goldens instead.

    `only_slice` makes the programs of CI's slice alone, `dump` is a folder for all texts. Without a pattern these are
    the programs that are frozen: of networks the frozen ones whose files are here.
    """
    golden, chosen = read(family, target), sliced(family, target)
    wanted = set(chosen if only_slice else here(family, golden, pattern))
    if only_slice or not pattern:
        pattern = _frozen(family, wanted)
    made: dict[str, Made] = {}
    for subject in subjects(family, target, pattern):
        if not only_slice or subject.name in chosen:
            made[subject.name] = make(subject.scop(), target)
            if dump is not None:
                _dump(dump / stem(family, target), subject.name, made[subject.name])
    if update:
        kept = {name: hashes for name, hashes in golden.items() if name not in wanted}
        write(family, target, {**kept, **{name: m.hashes for name, m in made.items()}}, made)
        return []
    gone = [f"{family} {target} {name}: is no longer made" for name in sorted(wanted - made.keys())]
    found = (difference(family, target, name, golden.get(name), m) for name, m in made.items())
    return [*filter(None, found), *gone]


def here(family: str, names: Iterable[str], pattern: str = "") -> list[str]:
    """The programs that can be made and whose names (of networks: the network's) match: trained networks may not have
    been fetched."""
    if family != "networks":
        return [name for name in names if re.search(pattern, name)]
    missing, parts = not_fetched(), {name: name.split("/")[0] for name in names}
    return [name for name, network in parts.items() if network not in missing and re.search(pattern, network)]


def _frozen(family: str, names: Iterable[str]) -> str:
    """A pattern of the networks of the named programs; of other families all programs are wanted."""
    return "|".join(sorted({f"^{re.escape(n.split('/')[0])}$" for n in names})) if family == "networks" else ""


def _dump(folder: Path, name: str, made: Made) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name.replace('/', '-')}.txt").write_text(made.text, encoding="utf-8")
