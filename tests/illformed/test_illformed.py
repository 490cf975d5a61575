"""Programs outside the language: each is refused with exactly the message in the file next to it.

`pytest tests/illformed --update-golden` writes the messages anew; read the difference.
"""

import runpy
import traceback
from pathlib import Path

import pytest

from polyc import DslError, Operator, PolycError

PROGRAMS = Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.py"))


def refusal(path: Path) -> DslError:
    """The error that defining and translating the operators of a file raises."""
    with pytest.raises(DslError) as caught:
        names = runpy.run_path(str(path))
        operators = [v for v in names.values() if isinstance(v, Operator)]
        assert operators
        operators[-1].scop()
    return caught.value


@pytest.mark.parametrize("name", NAMES)
def test_message(name: str, update_golden: bool) -> None:
    path = PROGRAMS / f"{name}.py"
    error = refusal(path)
    message = str(error).replace(str(path), path.name) + "\n"
    golden = path.with_suffix(".txt")
    if update_golden:
        golden.write_text(message, encoding="utf-8")
    assert message == golden.read_text(encoding="utf-8")
    place, source, caret, hint = (message.splitlines() + [""] * 4)[:4]
    assert place.startswith(f"{path.name}:{error.lineno}:{error.offset}: ") and hint.startswith("hint: ")
    text = path.read_text(encoding="utf-8").splitlines()[(error.lineno or 0) - 1]
    assert source == f"    {text}" and caret.strip(" ~") == "^"
    assert isinstance(error, SyntaxError) and isinstance(error, PolycError)
    assert error.filename == str(path) and error.text == text


def test_there_are_enough() -> None:
    assert len(NAMES) >= 40
    assert {p.stem for p in PROGRAMS.glob("*.txt")} == set(NAMES), "a message without its program"


@pytest.mark.parametrize("name", NAMES)
def test_no_internal_cause_shows(name: str) -> None:
    error = refusal(PROGRAMS / f"{name}.py")
    shown = "".join(traceback.format_exception(error))
    assert "During handling" not in shown and "direct cause" not in shown
    assert shown.count("frontend_dsl/") <= 4  # the way through `op` or `scop`, nothing deeper
