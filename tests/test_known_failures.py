"""Random programs that polyc does not get right yet; strict, so that a fix is noticed.

None of them computes a wrong value: the proof of the loops refuses the code.
"""

import pytest
from differential import check
from random_programs import generate

KNOWN = {
    5_000_915: "a random legal schedule: 'buffer is not filled, but a value from before it is read'",
    6_000_060: "a random legal schedule: 'the loops miss' an instance",
}


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=pytest.mark.xfail(reason=r, strict=True)) for s, r in KNOWN.items()]
)
def test_known_failure(seed: int) -> None:
    assert check(generate(seed), ("interp",)) is None
