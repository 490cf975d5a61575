"""The rows as `rows.toml` has them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
WHOLE, PART, NOT = "shown", "in part", "not shown"


@dataclass(frozen=True)
class Row:
    """One row: `tests` and `measured` are pytest's names below `tests/`.

    `measured` are those that time something: their part of the statement is shown by a long run alone, and `figures` is
    what such a run saw. `missing` says what of the statement is not shown.
    """

    name: str
    item: str
    statement: str
    tests: tuple[str, ...]
    missing: str
    measured: tuple[str, ...] = ()
    figures: str = ""

    @property
    def evidence(self) -> tuple[str, ...]:
        """All tests, timed or not."""
        return (*self.tests, *self.measured)

    @property
    def state(self) -> str:
        """What the row claims: a run has to bear it out."""
        return NOT if not self.evidence else PART if self.missing else WHOLE


def rows(path: Path = HERE / "rows.toml") -> dict[str, Row]:
    """All rows by name, in their order. `missing` of a row without tests says what is not there.

    Raises:
        ValueError: a row has neither tests nor a word about what is missing, or measurements without their figures (or
            figures without measurements).
    """
    found = {}
    for name, data in tomllib.loads(path.read_text(encoding="utf-8")).items():
        tests, measured = (tuple(data.get(key, ())) for key in ("tests", "measured"))
        row = Row(name, data["item"], data["statement"], tests, data.get("missing", ""), measured,
                  data.get("figures", ""))  # fmt: skip
        if not row.evidence and not row.missing:
            raise ValueError(f"row {name} says neither what shows it nor what is missing")
        if bool(row.measured) != bool(row.figures):
            raise ValueError(f"row {name}: measurements and figures belong together")
        found[name] = row
    return found
