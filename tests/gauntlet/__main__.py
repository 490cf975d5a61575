"""`python -m tests.gauntlet`: polyc's verdict on every case, against the expected one."""

from __future__ import annotations

import sys

from . import suite


def main() -> int:
    """Print the table; the exit status is the number of wrong verdicts."""
    wrong = 0
    print(f"{'case':34} {'expected':9} {'polyc':9} {'ms':>7}  legal if")
    for name in suite.names():
        case = suite.load(name)
        suite.answer(case)  # once for caches, so that the time is that of the check
        got = suite.answer(case)
        expected = case["expect"]["verdict"]
        wrong += got.verdict != expected
        condition = "" if got.error is None else str(got.error.legal_if)
        mark = "" if got.verdict == expected else "   <-- WRONG"
        print(f"{name:34} {expected:9} {got.verdict:9} {got.ms:7.1f}  {condition}{mark}")
    print(f"{len(suite.names())} cases, {wrong} wrong")
    return min(wrong, 100)


if __name__ == "__main__":
    sys.exit(main())
