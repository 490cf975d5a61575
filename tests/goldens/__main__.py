"""`python -m tests.goldens`: compare what the automatic strategies make with what is frozen, or freeze it anew.

    python -m tests.goldens                                  # everything: some 40 minutes on one core
    python -m tests.goldens --family library --target sm_80  # a part
    python -m tests.goldens --update                         # freeze what is made today
    python -m tests.goldens --dump FOLDER                    # texts of trees and loops, to compare two checkouts

Exit code 1 where something differs from its golden.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from .frozen import TARGETS, Made, make
from .subjects import Subject, groups, library, polybench

DATA = Path(__file__).with_name("data")
FAMILIES = ("library", "polybench", "networks")


def networks() -> list[Path]:
    """The light models, and the trained ones that have been fetched."""
    from benchmarks import packaged
    from benchmarks.models import LIGHT, light_model

    fetched = [model.path() for model in packaged.MODELS.values() if not model.bind]
    return [*map(light_model, LIGHT), *fetched]


def subjects(family: str, target: str, pattern: str) -> Iterator[Subject]:
    """The programs of one family whose names match."""
    if family == "networks":
        found = (s for path in networks() if re.search(pattern, path.stem) for s in groups(path, target.split("/")[0]))
        yield from found
    else:
        yield from (s for s in {"library": library, "polybench": polybench}[family]() if re.search(pattern, s.name))


def file_of(family: str, target: str) -> Path:
    """Where the goldens of a family on a target are."""
    return DATA / f"{family}-{target.replace('/', '-threads-')}.txt"


def read(path: Path) -> dict[str, tuple[str, str]]:
    """Hashes of tree and loops by name."""
    if not path.exists():
        return {}
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: (tree, loops) for name, tree, loops in rows}


def write(path: Path, goldens: dict[str, tuple[str, str]]) -> None:
    """The file, a line a program, in the order of names."""
    lines = (f"{name} {tree} {loops}\n" for name, (tree, loops) in sorted(goldens.items()))
    path.write_text("".join(lines), encoding="utf-8")


def run(family: str, target: str, pattern: str, update: bool, dump: Path | None) -> list[str]:
    """What differs, a line each; `update` writes the goldens instead."""
    path = file_of(family, target)
    golden, found, differing = read(path), {}, []
    for subject in subjects(family, target, pattern):
        made = make(subject.scop(), target)
        found[subject.name] = made.hashes
        if dump is not None:
            _dump(dump / path.stem, subject.name, made)
        if not update and golden.get(subject.name) != made.hashes:
            differing.append(f"{family} {target} {subject.name}: {_what(golden.get(subject.name), made)}")
    if update:
        write(path, {**golden, **found})
    return differing


def _what(golden: tuple[str, str] | None, made: Made) -> str:
    if golden is None:
        return "has no golden yet"
    tree, loops = (a != b for a, b in zip(golden, made.hashes))
    return " and ".join([*["tree differs"] * tree, *["loops differ"] * loops])


def _dump(folder: Path, name: str, made: Made) -> None:
    path = folder / f"{name.replace('/', '-')}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{made.tree}\n\n{made.loops}\n", encoding="utf-8")


def main() -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument(
        "--match", default="", help="regular expression: only programs (networks) whose name it matches"
    )
    parser.add_argument("--update", action="store_true", help="freeze what is made today")
    parser.add_argument("--dump", type=Path, help="write the texts into this folder")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    given = parser.parse_args()
    tasks = [(f, t) for f in given.family or FAMILIES for t in given.target or TARGETS]
    work = partial(run, pattern=given.match, update=given.update, dump=given.dump)
    with ProcessPoolExecutor(given.jobs) as pool:
        results = {pool.submit(work, family, target): (family, target) for family, target in tasks}
        differing: list[str] = []
        for future, (family, target) in results.items():
            lines = future.result()
            differing += lines
            print(f"{family} {target}: {'frozen' if given.update else f'{len(lines)} differ'}", flush=True)
    print(*differing, sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
