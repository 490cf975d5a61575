"""Random programs that polyc does not get right yet; strict, so that a fix is noticed.

It computes no wrong value: isl loses instances of a copy, the proof of the loops refuses the code, and
loops without remainders (`polyc.emit.lowering.schedule_to_isl.to_isl(loose=True)`) exceed the quota.
"""

import pytest
from differential import check
from random_programs import generate

KNOWN = {
    5_000_915: "a random legal schedule: 'buffer is not filled, but a value from before it is read'",
}


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=pytest.mark.xfail(reason=r, strict=True)) for s, r in KNOWN.items()]
)
def test_known_failure(seed: int) -> None:
    assert check(generate(seed), ("interp",)) is None


@pytest.mark.long
def test_the_last_loops_to_try_may_take_longer() -> None:
    """As above, but with the higher quota of `polyc.emit.lowering.lower` the loops without remainders are made."""
    assert check(generate(881_054), ("interp",)) is None
