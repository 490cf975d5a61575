"""The table of what is refused (docs/dsl.md): every row is a program here, with the message of that program."""

import re
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
PAGE = Path(__file__).parents[2] / "docs" / "dsl.md"


def rows() -> list[tuple[str, str]]:
    """Message and program of each row."""
    section = PAGE.read_text(encoding="utf-8").split("## What is refused, and why\n", 1)[1].split("\n## ", 1)[0]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in section.splitlines() if line.startswith("| `")]
    assert all(len(row) == 4 for row in cells)
    return [(row[1].strip("`").replace("\\|", "|"), row[3].strip("`")) for row in cells]


def reason(program: str) -> str:
    """The message of a program, without the place."""
    return PROGRAMS.joinpath(program + ".txt").read_text(encoding="utf-8").splitlines()[0].split(": ", 1)[1]


def test_each_row_is_the_message_of_its_program() -> None:
    found = rows()
    assert len(found) > 40 and len({program for _, program in found}) == len(found)
    for message, program in found:
        assert reason(program) == message


def test_each_word_outside_the_language_has_a_row() -> None:
    outside = {p.stem for p in PROGRAMS.glob("*.txt") if reason(p.stem).endswith("not part of the language")}
    assert outside - {"error_in_helper"} <= {program for _, program in rows()}
