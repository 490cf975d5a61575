"""Public functions, methods and classes have docstrings, which name the errors that they raise."""

import ast
import gc

import pytest
from undocumented import FOLDERS, definitions, raised, undocumented, unsaid_errors


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_public_is_documented_and_its_errors_are_named(folder: str) -> None:
    gc.disable()  # trees of a thousand files are no garbage
    try:
        assert undocumented(folder) == []
        assert unsaid_errors(folder) == []
    finally:
        gc.enable()


def test_what_a_function_raises() -> None:
    text = "def f():\n  try: raise A()\n  except E: raise B('x') from None\n  def g(): raise C()\n  if x: raise D"
    assert raised(ast.parse(f"{text}()").body[0]) == {"B", "D"}


def test_what_is_public() -> None:
    text = "def a():\n    def inner(): pass\ndef _b(): pass\nclass C:\n    def d(self): pass\n"
    tree = ast.parse(f"{text}class _E:\n    def f(self): pass")
    assert [f.name for f in definitions(tree.body, "poly")] == ["a", "C", "d"]
