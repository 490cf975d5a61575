"""The rows as `rows.toml` has them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
WHOLE, PART, NOT = "shown", "in part", "not shown"


@dataclass(frozen=True)
class Row:
    """One row: `tests` are pytest's names below `tests/`, `missing` says what of the statement they do not show."""

    name: str
    item: str
    statement: str
    tests: tuple[str, ...]
    missing: str

    @property
    def state(self) -> str:
        """What the row claims: a run has to bear it out."""
        return NOT if not self.tests else PART if self.missing else WHOLE


def rows(path: Path = HERE / "rows.toml") -> dict[str, Row]:
    """All rows by name, in their order. `missing` of a row without tests says what is not there.

    Raises:
        ValueError: a row has neither tests nor a word about what is missing.
    """
    found = {}
    for name, data in tomllib.loads(path.read_text(encoding="utf-8")).items():
        row = Row(name, data["item"], data["statement"], tuple(data.get("tests", ())), data.get("missing", ""))
        if not row.tests and not row.missing:
            raise ValueError(f"row {name} says neither what shows it nor what is missing")
        found[name] = row
    return found
