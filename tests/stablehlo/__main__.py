"""`python -m tests.stablehlo FOLDER [--processes N] [--list FILE] [NAME...]`: StableHLO's public test programs
(`stablehlo/testdata` of its repository) imported, compiled and compared; counts, and a reason for each of the rest."""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import re
from pathlib import Path

from tests.stablehlo.outcomes import outcome


def main() -> int:
    """Prints the counts, then the reasons with how often and an example."""
    asked = argparse.ArgumentParser(prog="python -m tests.stablehlo", description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("names", nargs="*", help="parts of file names; none: all")
    asked.add_argument("--processes", type=int, default=1)
    asked.add_argument("--every", type=int, default=1, help="each n-th only")
    asked.add_argument("--list", type=Path, help="a file for a line of each program")
    args = asked.parse_args()
    paths = sorted(p for p in args.folder.rglob("*.mlir") if not args.names or any(n in p.name for n in args.names))
    paths = paths[:: args.every]
    counts: collections.Counter[str] = collections.Counter()
    reasons: dict[str, list[str]] = {}
    lines = []
    with multiprocessing.get_context("spawn").Pool(args.processes, maxtasksperchild=200) as pool:
        for path, (kind, why) in zip(paths, pool.imap(outcome, paths, 8), strict=True):
            counts[kind] += 1
            lines.append(f"{kind}\t{path.relative_to(args.folder)}\t{why}")
            if kind != "right":
                plain = re.sub(r"^[^ ]*:\d+: ", "", why) if kind == "refused" else why.partition(":")[0]
                reasons.setdefault(f"{kind}: {plain}", []).append(f"{path.name}: {why}")
    for text, found in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(found):5}  {text[:150]}  [{found[0][:150]}]")
    if args.list:
        args.list.write_text("\n".join(lines) + "\n", encoding="utf-8")
    on_host = sum("\ton the host" in line for line in lines)
    summary = ", ".join(f"{n} {k}" for k, n in sorted(counts.items()))
    print(f"{len(paths)} programs: {summary}; {on_host} of the right ones partly on the host")
    return 0 if not counts["wrong"] and not counts["failed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
