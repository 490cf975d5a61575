"""`python tests/proof 200`: so many seeded bugs in generated loops against the proof."""

import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(wanted: int, changes: int) -> int:
    """Prints the table; 1 if a bug was missed."""
    from seeded_bugs import all_cases, judged

    tally = judged(all_cases(), 12, wanted, changes=changes)
    print(tally)
    for case, mutant, why in tally.missed:
        print(f"MISSED {case.name}: {mutant.kind}, {mutant.what}: {why}")
    return int(bool(tally.missed))


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]
    arguments = [int(a) for a in sys.argv[1:]]
    sys.exit(main(arguments[0] if arguments else 200, arguments[1] if len(arguments) > 1 else 1))
