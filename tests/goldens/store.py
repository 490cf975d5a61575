"""The goldens' files: a line a program with its hashes, and the texts of a few short ones."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path

from .frozen import Made

DATA = Path(__file__).with_name("data")
SHORT = 60
"""Lines: longer texts are kept as hashes only."""

SLICE = {"library": 12, "polybench": 3, "networks": 3}
"""Programs of a family on each target that CI makes: about a minute in all."""

SLICED_NETWORK = "light_squeezenet"
"""The network of CI: the one with the fewest nodes, since a slice imports and optimises it for every target."""

Goldens = dict[str, tuple[str, str]]


def stem(family: str, target: str) -> str:
    """What the files of a family on a target are called."""
    return f"{family}-{target.replace('/', '-threads-')}"


def read(family: str, target: str) -> Goldens:
    """Hashes of tree and loops by name; none where nothing is frozen."""
    path = DATA / f"{stem(family, target)}.txt"
    if not path.exists():
        return {}
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: (tree, loops) for name, tree, loops in rows}


def write(family: str, target: str, goldens: Goldens, made: Mapping[str, Made]) -> None:
    """The file, a line a program in the order of names, and the texts that are kept of those made just now."""
    DATA.mkdir(exist_ok=True)
    lines = (f"{name} {tree} {loops}\n" for name, (tree, loops) in sorted(goldens.items()))
    (DATA / f"{stem(family, target)}.txt").write_text("".join(lines), encoding="utf-8")
    chosen = sliced(family, target)
    for path in (DATA / stem(family, target)).glob("*.txt"):
        if path.stem not in {_file(name) for name in chosen}:
            path.unlink()
    for name in chosen:
        if name in made:
            path = text_of(family, target, name)
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            if made[name].text.count("\n") <= SHORT:
                path.write_text(made[name].text, encoding="utf-8")


def sliced(family: str, target: str) -> list[str]:
    """The names of CI's slice: those whose names, with the target's, have the smallest hashes."""
    names = [n for n in read(family, target) if family != "networks" or n.startswith(SLICED_NETWORK + "/")]
    return sorted(names, key=lambda n: sha256(f"{target} {n}".encode()).hexdigest())[: SLICE[family]]


def text_of(family: str, target: str, name: str) -> Path:
    """Where the text of a program of the slice is kept if it is short."""
    return DATA / stem(family, target) / f"{_file(name)}.txt"


def difference(family: str, target: str, name: str, golden: tuple[str, str] | None, made: Made) -> str | None:
    """What differs from the golden: a line, and the lines that changed where the text is kept; None: nothing."""
    if golden == made.hashes:
        return None
    if golden is None:
        return f"{family} {target} {name}: has no golden yet"
    changed = [what for what, a, b in zip(("tree", "loops"), golden, made.hashes) if a != b]
    line = f"{family} {target} {name}: {' and '.join(changed)} changed"
    path = text_of(family, target, name)
    if not path.exists():
        return line
    old = path.read_text(encoding="utf-8").splitlines()
    return "\n".join([line, *list(unified_diff(old, made.text.splitlines(), "frozen", "made", lineterm="", n=1))])


def _file(name: str) -> str:
    return name.replace("/", "-")
