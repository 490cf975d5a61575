"""`python -m polyc.emit.proof.checker FILE...`, or `python check.pyz FILE...` beside what `polyc certify` writes."""

import sys
from pathlib import Path

from .check import check
from .text import Rejected

MOST = 20_000  # stores that run at each combination of sizes


def main(paths: list[str]) -> int:
    """Check files; 0 if all certificates hold."""
    bad = 0
    for path in paths:
        try:
            seen = check(Path(path).read_text(encoding="utf-8"), MOST)
            cut = f", at {seen['cut']} of them no more than {MOST:,} stores" if seen["cut"] else ""
            print(f"{path}: holds ({seen['stores']} stores; run at {len(seen['sizes'])} sizes{cut})", flush=True)
        except (Rejected, OSError, ValueError, KeyError) as error:
            bad += 1
            print(f"{path}: {error}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
