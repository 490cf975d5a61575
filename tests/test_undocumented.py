"""Public functions, methods and classes have docstrings."""

import ast

import pytest
from undocumented import FOLDERS, definitions, undocumented


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_public_is_documented(folder: str) -> None:
    assert undocumented(folder) == []


def test_what_is_public() -> None:
    text = "def a():\n    def inner(): pass\ndef _b(): pass\nclass C:\n    def d(self): pass\n"
    tree = ast.parse(f"{text}class _E:\n    def f(self): pass")
    assert [f.name for f in definitions(tree.body, "poly")] == ["a", "C", "d"]
