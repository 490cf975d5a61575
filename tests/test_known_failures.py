"""Random programs that polyc does not get right yet; strict, so that a fix is noticed.

None of them computes a wrong value silently except the last, where Python's own dtype
depends on which arm of a conditional ran.
"""

import pytest
from differential import check
from random_programs import generate

KNOWN = {
    100472: "a block loop of negative-step origin split twice: the domain proof refuses the loops",
    200535: "`f16 if c else f64` is typed by the join of both arms, Python types it by the arm that ran",
}


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=pytest.mark.xfail(reason=r, strict=True)) for s, r in KNOWN.items()]
)
def test_known_failure(seed: int) -> None:
    assert check(generate(seed), ("interp",)) is None
