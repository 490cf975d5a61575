"""Makes the programs of a family on a target and holds them against their goldens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .frozen import Made, make
from .store import difference, read, sliced, stem, write
from .subjects import Subject, groups, library, networks, polybench

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

    `only_slice` makes the programs of CI's slice alone, `dump` is a folder for all texts.
    """
    golden, chosen = read(family, target), sliced(family, target)
    if only_slice and family == "networks":
        pattern = "|".join({f"^{name.split('/')[0]}$" for name in chosen})
    made: dict[str, Made] = {}
    for subject in subjects(family, target, pattern):
        if not only_slice or subject.name in chosen:
            made[subject.name] = make(subject.scop(), target)
            if dump is not None:
                _dump(dump / stem(family, target), subject.name, made[subject.name])
    if update:
        kept = golden if pattern or only_slice else {}
        write(family, target, {**kept, **{name: m.hashes for name, m in made.items()}}, made)
        return []
    wanted = chosen if only_slice else () if pattern else golden
    gone = [f"{family} {target} {name}: is no longer made" for name in wanted if name not in made]
    found = (difference(family, target, name, golden.get(name), m) for name, m in made.items())
    return [*filter(None, found), *gone]


def _dump(folder: Path, name: str, made: Made) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name.replace('/', '-')}.txt").write_text(made.text, encoding="utf-8")
