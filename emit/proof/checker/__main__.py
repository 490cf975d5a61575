"""`python -m polyc.emit.proof.checker FILE...`"""

import sys
from pathlib import Path

from .check import check
from .text import Rejected


def main(paths: list[str]) -> int:
    """Check files; 0 if all certificates hold."""
    bad = 0
    for path in paths:
        try:
            seen = check(Path(path).read_text(encoding="utf-8"))
            print(f"{path}: holds ({seen['stores']} stores; run at {len(seen['sizes'])} sizes)")
        except (Rejected, OSError, ValueError, KeyError) as error:
            bad += 1
            print(f"{path}: {error}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
