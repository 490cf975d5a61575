"""Of a test with many cases a part runs each time, spread over all of them."""

import pytest

from tests.parts import ALL, in_part, spread


@pytest.mark.parametrize("count", [1, 2, ALL, ALL + 1, 30, 302])
def test_the_first_the_last_and_others_between(count: int) -> None:
    kept = spread(count)
    assert kept[0] == 0 and kept[-1] == count - 1 and kept == sorted(set(kept))
    assert len(kept) == count if count <= ALL else ALL <= len(kept) < count
    gaps = [b - a for a, b in zip(kept, kept[1:], strict=False)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_cases_that_are_kept_by_a_rule() -> None:
    made = in_part([1, 2, 3], lambda n: n == 2)
    assert [bool(p.marks) for p in made] == [True, False, True]
