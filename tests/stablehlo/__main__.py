"""`python -m tests.stablehlo FOLDER [--processes N] [--list FILE] [NAME...]`: StableHLO's public test programs
(`stablehlo/testdata` of its repository) imported, compiled and compared; counts, and a reason for each of the rest.

With `--list` a run that was ended goes on where it stopped: programs that the file has a line of are not run again."""

from __future__ import annotations

import argparse
import collections
import contextlib
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
    known = _lines_of(args.list)
    left = [p for p in paths if str(p.relative_to(args.folder)) not in known]
    with contextlib.ExitStack() as open_ones:
        lines_to = open_ones.enter_context(args.list.open("a", encoding="utf-8")) if args.list else None
        pool = open_ones.enter_context(multiprocessing.get_context("spawn").Pool(args.processes, maxtasksperchild=200))
        for path, (kind, why) in zip(left, pool.imap(outcome, left, 8), strict=True):
            name = str(path.relative_to(args.folder))
            known[name] = kind, why
            if lines_to is not None:
                print(kind, name, why, sep="\t", file=lines_to, flush=True)
    on_host = 0
    for path in paths:
        kind, why = known[str(path.relative_to(args.folder))]
        counts[kind] += 1
        on_host += why.startswith("on the host")
        if kind != "right":
            plain = re.sub(r"^[^ ]*:\d+: ", "", why) if kind == "refused" else why.partition(":")[0]
            reasons.setdefault(f"{kind}: {plain}", []).append(f"{path.name}: {why}")
    for text, found in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(found):5}  {text[:150]}  [{found[0][:150]}]")
    summary = ", ".join(f"{n} {k}" for k, n in sorted(counts.items()))
    print(f"{len(paths)} programs: {summary}; {on_host} of the right ones partly on the host")
    return 0 if not counts["wrong"] and not counts["failed"] else 1


def _lines_of(file: Path | None) -> dict[str, tuple[str, str]]:
    """What became of each program that a file of `--list` names."""
    if file is None or not file.is_file():
        return {}
    found = (line.split("\t", 2) for line in file.read_text(encoding="utf-8").splitlines() if line.count("\t") >= 2)
    return {name: (kind, why) for kind, name, why in found}


if __name__ == "__main__":
    raise SystemExit(main())
