"""Public functions and methods have docstrings: counts that may only go down."""

import ast

import pytest
from undocumented import functions, undocumented


@pytest.mark.parametrize(("folder", "most"), [("emit/gpu", 0), ("scheduler", 0)])
def test_public_functions_are_documented(folder: str, most: int) -> None:
    assert len(undocumented(folder)) == most, undocumented(folder)


def test_what_is_public() -> None:
    text = "def a():\n    def inner(): pass\ndef _b(): pass\nclass C:\n    def d(self): pass\n"
    tree = ast.parse(f"{text}class _E:\n    def f(self): pass")
    assert [f.name for f in functions(tree.body)] == ["a", "d"]
