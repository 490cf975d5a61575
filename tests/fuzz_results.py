"""The page of campaigns: which seeds ran, at which commit, and what failed. A range that stands there is done."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

TITLE = """# Random programs that ran

`python tests/fuzz.py campaign COUNT SEED` adds to this page, and leaves out seeds that stand here (`--again` runs them
anew). A seed is one random program of one slice (`tests/campaign.py`), compared with plain Python. Seconds are the
processor's.

"""
HEAD = "| seeds | programs | C too | failures | s | commit | day |\n| --- | ---: | ---: | ---: | ---: | --- | --- |\n"
ROW = re.compile(r"\| (\d+) to (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\S+) \| (\S+) \|")


@dataclass(frozen=True)
class Block:
    """Seeds first..last, all of them run at one commit."""

    first: int
    last: int
    c: int
    failures: int
    seconds: int
    commit: str
    day: str

    @property
    def programs(self) -> int:
        return self.last - self.first + 1

    def row(self) -> str:
        numbers = f"{self.programs} | {self.c} | {self.failures} | {self.seconds}"
        return f"| {self.first} to {self.last} | {numbers} | {self.commit} | {self.day} |"


def read(page: Path) -> tuple[list[Block], list[str]]:
    """The blocks of a page and its lines about failures."""
    if not page.exists():
        return [], []
    lines = page.read_text().splitlines()
    found = [m.groups() for m in map(ROW.match, lines) if m]
    blocks = [Block(int(a), int(b), int(c), int(f), int(s), commit, day) for a, b, _, c, f, s, commit, day in found]
    return blocks, [line for line in lines if line.startswith("- seed ")]


def write(page: Path, blocks: Iterable[Block], failures: Iterable[str]) -> None:
    """The page anew; neighbours of one commit become one row."""
    joined: list[Block] = []
    for b in sorted(blocks, key=lambda b: b.first):
        a = joined[-1] if joined else None
        if a and (a.last + 1, a.commit, a.day) == (b.first, b.commit, b.day):
            joined[-1] = replace(
                a, last=b.last, c=a.c + b.c, failures=a.failures + b.failures, seconds=a.seconds + b.seconds
            )
        else:
            joined.append(b)
    total = f"{sum(b.programs for b in joined)} | {sum(b.c for b in joined)} | {sum(b.failures for b in joined)}"
    rows = [b.row() for b in joined] + [f"| all | {total} | {sum(b.seconds for b in joined)} | | |"]
    said = "\n".join(failures) or "None."
    temporary = page.with_suffix(".new")
    temporary.write_text(f"{TITLE}{HEAD}" + "\n".join(rows) + f"\n\n## Failures\n\n{said}\n")
    temporary.replace(page)


def missing(blocks: Iterable[Block], seeds: range, size: int) -> list[range]:
    """The parts of `seeds`, in pieces of `size`, that no block holds."""
    done = {(b.first, b.last) for b in blocks}
    pieces = [range(s, min(s + size, seeds.stop)) for s in range(seeds.start, seeds.stop, size)]
    return [p for p in pieces if not any(a <= p.start and p.stop - 1 <= b for a, b in done)]
