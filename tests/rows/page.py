"""`docs/rows.md`: all rows with their state, what shows them and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.rows.table import NOT, PART, WHOLE, Row

TITLES = {
    "A": "Overall structure", "B": "Graph optimisation", "C": "Operator selection", "D": "Memory",
    "E": "Scheduling and execution at run time", "F": "Operator compiler", "G": "Polyhedral technique",
    "H": "Systems and projects named", "I": "Inference, training and the three stages", "J": "Background topics",
    "K": "What a second reading added", "T": "What no other system has",
}  # fmt: skip
HEAD = """# Rows of the mission

Made by `python -m tests.rows --page docs/rows.md` from `tests/rows/rows.toml`. `python -m tests.rows` runs the tests
behind every row and prints what it saw (`--long` with the long ones, `--list` without running). A row is *shown* when
its tests show the whole statement; *in part* says what is missing; *not shown* has no test. What is *measured*
runs with `--long` alone, one at a time; the figures are those of the last such run.

"""


def page(every: Iterable[Row]) -> str:
    """All rows as Markdown, a table for each section."""
    rows = list(every)
    counts = Counter(r.state for r in rows)
    parts = [HEAD, ", ".join(f"{counts[s]} {s}" for s in (WHOLE, PART, NOT)), f", of {len(rows)}.\n"]
    section = ""
    for r in rows:
        if (letter := r.name.rstrip("0123456789")) != section:
            section = letter
            parts.append(f"\n## {letter}. {TITLES[letter]}\n\n| row | item | state | shown by | missing |\n")
            parts.append("| --- | --- | --- | --- | --- |\n")
        files = dict.fromkeys(n.partition("::")[0] for n in r.tests)
        shown = ", ".join(f"`tests/{f}`" for f in files)
        if r.measured:
            timed = ", ".join(f"`tests/{f}`" for f in dict.fromkeys(n.partition("::")[0] for n in r.measured))
            shown += f"{'; ' if shown else ''}measured by {timed}: {_cell(r.figures)}"
        parts.append(f"| {r.name} | {_cell(r.item)} | {r.state} | {shown} | {_cell(r.missing)} |\n")
    return "".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
