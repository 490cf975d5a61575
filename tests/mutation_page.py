"""The page of damaged inputs: how many of each kind ran, at which commit, and what failed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

TITLE = """# Damaged inputs that ran

`python -m tests.mutations COUNT SEED --page tests/mutation_results.md` adds to this page, and leaves out seeds that
stand here. A seed of a kind is one valid input, damaged. `accepted`: it was still right, or what it said was done; all
others ended in one line. Seconds are the processor's.

"""
HEAD = "| kind | seeds | inputs | accepted | failures | s | commit | day |\n"
HEAD += "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |\n"
ROW = re.compile(r"\| (\w+) \| (\d+) to (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\S+) \| (\S+) \|")


@dataclass(frozen=True)
class Block:
    """Seeds first..last of a kind, all of them run at one commit."""

    kind: str
    first: int
    last: int
    ran: int
    failures: int
    seconds: int
    commit: str
    day: str

    @property
    def inputs(self) -> int:
        return self.last - self.first + 1

    def row(self) -> str:
        numbers = f"{self.inputs} | {self.ran} | {self.failures} | {self.seconds}"
        return f"| {self.kind} | {self.first} to {self.last} | {numbers} | {self.commit} | {self.day} |"


def read(page: Path) -> tuple[list[Block], list[str]]:
    """The blocks of a page and its lines about failures."""
    if not page.exists():
        return [], []
    lines = page.read_text().splitlines()
    found = [m.groups() for m in map(ROW.match, lines) if m]
    blocks = [Block(k, int(a), int(b), int(r), int(f), int(s), c, d) for k, a, b, _, r, f, s, c, d in found]
    return blocks, [line for line in lines if line.startswith("- ")]


def write(page: Path, blocks: Iterable[Block], failures: Iterable[str]) -> None:
    """The page anew; neighbours of one commit become one row."""
    joined: list[Block] = []
    for b in sorted(blocks, key=lambda b: (b.kind, b.first)):
        a = joined[-1] if joined else None
        if a and (a.kind, a.last + 1, a.commit, a.day) == (b.kind, b.first, b.commit, b.day):
            joined[-1] = replace(
                a, last=b.last, ran=a.ran + b.ran, failures=a.failures + b.failures, seconds=a.seconds + b.seconds
            )
        else:
            joined.append(b)
    total = " | ".join(str(sum(getattr(b, n) for b in joined)) for n in ("inputs", "ran", "failures", "seconds"))
    rows = [b.row() for b in joined] + [f"| all | | {total} | | |"]
    said = "\n".join(failures) or "None."
    temporary = page.with_suffix(".new")
    temporary.write_text(f"{TITLE}{HEAD}" + "\n".join(rows) + f"\n\n## Failures\n\n{said}\n")
    temporary.replace(page)


def missing(blocks: Iterable[Block], kind: str, seeds: range, size: int) -> list[range]:
    """The parts of `seeds`, in pieces of `size`, that no block of the kind holds."""
    done = [(b.first, b.last) for b in blocks if b.kind == kind]
    pieces = [range(s, min(s + size, seeds.stop)) for s in range(seeds.start, seeds.stop, size)]
    return [p for p in pieces if not any(a <= p.start and p.stop - 1 <= b for a, b in done)]
