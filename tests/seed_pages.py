"""Pages of campaigns: which seeds ran, at which commit, what became of them, and what failed.

A range of seeds that stands on a page is done: a campaign goes on where it ended.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

SEEDS = re.compile(r"(\d+) to (\d+)")
FAILURES = "## Failures"


@dataclass(frozen=True)
class Block:
    """Seeds first..last of one kind ("" where a page has no kinds), all of them run at one commit.

    `counts`: of the page's columns. `seconds`: of the processor.
    """

    first: int
    last: int
    counts: tuple[int, ...]
    failures: int
    seconds: int
    commit: str
    day: str
    kind: str = ""

    @property
    def size(self) -> int:
        """How many seeds."""
        return self.last - self.first + 1

    def numbers(self) -> tuple[int, ...]:
        """What stands between the seeds and the commit."""
        return self.size, *self.counts, self.failures, self.seconds

    def joined(self, after: Block) -> Block | None:
        """One block of this and the one `after` it; None where they are no neighbours of one kind, commit and day."""
        if (self.kind, self.last + 1, self.commit, self.day) != (after.kind, after.first, after.commit, after.day):
            return None
        counts = tuple(a + b for a, b in zip(self.counts, after.counts, strict=True))
        return replace(
            self, last=after.last, counts=counts, failures=self.failures + after.failures,
            seconds=self.seconds + after.seconds,
        )  # fmt: skip


@dataclass(frozen=True)
class Page:
    """What a page says before its table, what one seed makes (`of`), and what is counted besides failures."""

    title: str
    of: str
    counts: tuple[str, ...]
    kinds: bool = False

    def head(self) -> str:
        """The first two lines of the table."""
        words = ["kind"] * self.kinds + ["seeds"]
        numbers = [self.of, *self.counts, "failures", "s"]
        rules = ["---"] * len(words) + ["---:"] * len(numbers) + ["---"] * 2
        return f"{_row(*words, *numbers, 'commit', 'day')}\n{_row(*rules)}"

    def row(self, b: Block) -> str:
        """The line of a block."""
        return _row(*[b.kind] * self.kinds, f"{b.first} to {b.last}", *b.numbers(), b.commit, b.day)

    def _block(self, line: str) -> Block | None:
        cells = [c.strip() for c in line.strip("|").split("|")]
        kind = cells.pop(0) if self.kinds else ""
        seeds = SEEDS.fullmatch(cells[0]) if cells else None
        if seeds is None:
            return None
        _, *counts, failures, seconds = map(int, cells[1:-2])
        return Block(int(seeds[1]), int(seeds[2]), tuple(counts), failures, seconds, *cells[-2:], kind)

    def read(self, path: Path) -> tuple[list[Block], list[str]]:
        """The blocks of a page and what it says about failures, line by line."""
        if not path.exists():
            return [], []
        table, _, said = path.read_text(encoding="utf-8").partition(f"\n{FAILURES}\n")
        blocks = [b for line in table.splitlines() if line.startswith("|") and (b := self._block(line))]
        return blocks, [] if said.strip() == "None." else said.strip().splitlines()

    def write(self, path: Path, blocks: Iterable[Block], said: Sequence[str]) -> None:
        """The page anew; neighbours of one commit become one row."""
        rows: list[Block] = []
        for b in sorted(blocks, key=lambda b: (b.kind, b.first)):
            both = rows[-1].joined(b) if rows else None
            rows[-1:] = [both] if both else [*rows[-1:], b]
        totals = (sum(column) for column in zip(*(b.numbers() for b in rows), strict=True))
        last = _row("all", *[""] * self.kinds, *totals, "", "")
        table = "\n".join([self.head(), *map(self.row, rows), last])
        temporary = path.with_suffix(".new")
        text = f"{self.title}\n{table}\n\n{FAILURES}\n\n" + ("\n".join(said) or "None.") + "\n"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def _row(*cells: object) -> str:
    return "|" + "|".join(f" {c} " if c != "" else " " for c in cells) + "|"


def missing(blocks: Iterable[Block], seeds: range, size: int, kind: str = "") -> list[range]:
    """The parts of `seeds`, in pieces of `size`, that no block of the kind holds."""
    done = [(b.first, b.last) for b in blocks if b.kind == kind]
    pieces = [range(s, min(s + size, seeds.stop)) for s in range(seeds.start, seeds.stop, size)]
    return [p for p in pieces if not any(a <= p.start and p.stop - 1 <= b for a, b in done)]


def seconds_used() -> float:
    """Seconds of the processor of this process and what it started."""
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


@dataclass
class Run:
    """A piece of a campaign that is under way: `block` makes its row. Seconds count from here."""

    seeds: range
    kind: str = ""
    began: float = field(default_factory=seconds_used)

    def block(self, counts: Iterable[int], failures: int, seconds: float | None = None) -> Block:
        """Its row; `seconds` where other processes than this one and its children ran the seeds."""
        taken = seconds_used() - self.began if seconds is None else seconds
        return Block(self.seeds.start, self.seeds.stop - 1, tuple(counts), failures, round(taken), commit_here(),
                     time.strftime("%Y-%m-%d"), self.kind)  # fmt: skip


def go_through(
    page: Page, path: Path | None, seeds: range, size: int, run: Callable[[Run], tuple[Block, Sequence[str]]],
    kind: str = "", again: bool = False,
) -> int:  # fmt: skip
    """Run seeds in pieces of `size` and print the row and the failures of each; gives the number of failures.

    With a `path`, pieces that stand on the page are left out (unless `again`), and the others are put there.
    """
    failed = 0
    blocks, said = page.read(path) if path else ([], [])
    for piece in missing([] if again else blocks, seeds, size, kind):
        block, failures = run(Run(piece, kind))
        failed += block.failures
        blocks = [b for b in blocks if b.kind != kind or b.first < piece.start or b.last >= piece.stop] + [block]
        said += [line for line in failures if line not in said]
        if path:
            page.write(path, blocks, said)
        print(page.row(block), *failures, sep="\n", flush=True)
    return failed


def commit_here() -> str:
    """The commit of the tree, with a + where something but these pages is changed."""
    git = ["git", "-C", str(Path(__file__).parent)]
    head = subprocess.run([*git, "rev-parse", "--short=9", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "-uno", ".."], capture_output=True, text=True).stdout
    other = [line for line in changed.splitlines() if not line.endswith("_results.md")]
    return f"{head or 'none'}{'+' if other else ''}"
