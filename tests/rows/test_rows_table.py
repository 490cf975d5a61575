"""The table of rows: whole, with tests that exist, and the page as it is made from it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.rows.page import TITLES, page
from tests.rows.running import Outcome, read, seen
from tests.rows.table import NOT, PART, WHOLE, Row, rows

TESTS = Path(__file__).parents[1]


@cache
def functions(file: str) -> frozenset[str]:
    """The functions of a test file."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def test_all_rows_are_there() -> None:
    counts = dict.fromkeys(TITLES, 0)
    for name in rows():
        counts[name.rstrip("0123456789")] += 1
    assert counts.pop("T") == 15
    assert sum(counts.values()) == 154


def test_tests_exist() -> None:
    for row in rows().values():
        for name in row.evidence:
            file, _, function = name.partition("::")
            assert function in functions(file), f"{row.name}: {name}"


def test_the_page_is_made_from_the_table() -> None:
    assert (TESTS.parent / "docs" / "rows.md").read_text(encoding="utf-8") == page(rows().values())


def test_what_is_timed_is_measured() -> None:
    """Tests of a row run in `make test`, beside others; what has the mark `bench` does not."""
    for row in rows().values():
        assert not [n for n in row.tests if n.startswith("measured/")], row.name
        assert all(n.startswith("measured/") for n in row.measured), row.name


@pytest.mark.parametrize(("outcome", "missing", "state"), [
    (Outcome(passed=2), "", WHOLE),
    (Outcome(passed=2), "a picture", PART),
    (Outcome(passed=2, failed=1), "", NOT),
    (Outcome(skipped=1), "", NOT),
    (Outcome(), "", NOT),
])  # fmt: skip
def test_a_row_is_what_its_tests_did(outcome: Outcome, missing: str, state: str) -> None:
    row = Row("A1", "x", "y", ("a/test_b.py::test_c",), missing)
    assert seen(row, {row.tests[0]: outcome})[0] == state


def test_half_skipped_is_in_part() -> None:
    row = Row("A1", "x", "y", ("a::b", "a::c"), "")
    assert seen(row, {"a::b": Outcome(passed=1), "a::c": Outcome(skipped=1)})[0] == PART


@pytest.mark.parametrize(("measured", "state"), [
    (None, PART),
    (Outcome(skipped=1), PART),
    (Outcome(failed=1), PART),
    (Outcome(passed=1), WHOLE),
])  # fmt: skip
def test_what_is_measured_has_to_be_borne_out(measured: Outcome | None, state: str) -> None:
    row = Row("A1", "x", "y", ("a::b",), "", ("measured/c::d",), "twice as fast")
    outcomes = {"a::b": Outcome(passed=1)} | ({} if measured is None else {"measured/c::d": measured})
    assert seen(row, outcomes)[0] == state
    assert row.state == WHOLE


def test_figures_belong_to_measurements(tmp_path: Path) -> None:
    (tmp_path / "rows.toml").write_text('[A1]\nitem = "x"\nstatement = "y"\nmeasured = ["measured/a::b"]\n')
    with pytest.raises(ValueError, match="belong together"):
        rows(tmp_path / "rows.toml")


def test_reports_are_read(tmp_path: Path) -> None:
    (tmp_path / "r.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_b" name="test_c[x::y]" time="1.5">'
        '<properties><property name="figure" value="2.1 times"/></properties></testcase>'
        '<testcase classname="tests.a.test_b" name="test_c[z]" time="0.5"><failure/></testcase>'
        '<testcase classname="tests.a.test_b" name="test_d"><skipped/></testcase></testsuite></testsuites>'
    )
    found = read(tmp_path / "r.xml", ["a/test_b.py::test_c", "a/test_b.py::test_e"])
    assert found == {"a/test_b.py::test_c": Outcome(1, 1, 0, 2.0, ["2.1 times"]), "a/test_b.py::test_e": Outcome()}
    assert str(found["a/test_b.py::test_c"]) == "1 passed, 1 failed"
