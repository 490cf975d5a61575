"""The figure of docs/architecture.md is that of the code."""

import architecture_figure
from architecture_figure import FIGURE, figure, lists, rooms


def test_the_figure_is_drawn_from_the_code_as_it_is() -> None:
    assert FIGURE.read_text(encoding="utf-8") == figure(), "stale: run python -m tests.architecture_figure"


def test_it_has_every_folder_and_every_pass() -> None:
    text = figure()
    for column in architecture_figure.COLUMNS:
        for package, *_ in column:
            assert rooms(package) and all(f">{name}/<" in text for name in rooms(package))
    assert {(package, room) for package, room in lists() if room not in rooms(package)} == set()


def test_a_room_stands_below_what_it_imports() -> None:
    found = rooms("emit")
    assert found.index("loop_ir") < found.index("passes") < found.index("gpu")
