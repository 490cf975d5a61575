"""Numbers of the strategies have names and reasons: counts that may only go down."""

import ast
from collections import Counter

from unnamed_numbers import DECIDING, PRICING, counted, in_functions, literals

MOST_DECIDING = 5
MOST_PRICING = 9


def test_strategies_have_no_more_numbers_than_they_had() -> None:
    found = sum(map(counted, DECIDING), Counter[str]())
    assert found.total() == MOST_DECIDING, f"{found}: more go to scheduler/cost under a name; fewer lower the bound"


def test_functions_of_the_cost_model_have_no_more_numbers_than_they_had() -> None:
    found = counted(PRICING)
    assert found.total() == MOST_PRICING, f"{found}: more get a name and a reason; fewer lower the bound"


def test_what_is_counted() -> None:
    tree = ast.parse("WAYS = 8\nON = True\ndef f(n=3):\n    return n * 2 - 1 + 0.5\n")
    assert [n.value for n in literals(tree)] == [8, 3, 0.5]
    assert [n.value for n in in_functions(tree)] == [3, 0.5]
