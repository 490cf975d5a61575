"""`python -m tests.opinfo [--backward] [--most K] [--json FILE] [OPERATOR ...]`: coverage of core ATen operators.

All samples take an hour: with `--json FILE` what ran is kept there and a further run goes on with what is left, also
with a larger `--most`; `--seconds` ends a run in between. Outcomes of another version of polyc (its files differ) are
not gone on with: the run begins anew, and says so."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .cases import BORROWED, borrowed, cases, samples
from .runs import EAGER, FAILED, KERNELS, NO_GRADIENT, REFUSED, WRONG, Outcome, run
from .versions import commit, sources


def main() -> None:
    """Run the samples and print a line for each operator."""
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=__doc__)
    parser.add_argument("operators", nargs="*", help="core ATen operators, all by default")
    parser.add_argument("--backward", action="store_true", help="gradients, of operators that have them")
    parser.add_argument("--most", type=int, default=1 << 30, help="samples of an OpInfo at most")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no sample after that time")
    parser.add_argument("--json", type=Path, help="outcomes of each OpInfo, written here, and gone on with")
    parser.add_argument("--borrow", action="store_true", help="find OpInfos for operators without, write borrowed.json")
    args = parser.parse_args()
    if args.borrow:
        BORROWED.write_text(json.dumps(borrowed(), indent=1) + "\n")
        return
    began = time.monotonic()
    known, left = Known(args.json, args.backward), 0
    outcomes: dict[str, list[tuple[str, int, Outcome]]] = {}
    for name, infos in cases(args.operators).items():
        outcomes[name] = []
        for op in infos:
            if args.backward and not op.supports_autograd:
                continue
            found, not_run = known.outcomes(op, args.most, began + args.seconds)
            outcomes[name] += [(op.formatted_name, k, o) for k, o in enumerate(found)]
            left += not_run
        print(line(name, outcomes[name]), flush=True)
    print(f"{time.monotonic() - began:.0f} s, polyc {known.commit}", file=sys.stderr)
    if left:
        print(f"{left} OpInfos have samples that did not run")
    print(summary(outcomes))


class Known:
    """The outcomes of OpInfos by name. Several operators have one OpInfo in common: its samples run once.

    Raises SystemExit where the file is of the other direction, and where files of polyc change while it runs."""

    def __init__(self, path: Path | None, backward: bool) -> None:
        self.path, self.backward, self.sources, self.commit = path, backward, sources(), commit()
        self.found: dict[str, list[Outcome]] = {}
        self.all_seen: set[str] = set()
        if path is None or not path.exists():
            return
        kept = json.loads(path.read_text())
        if kept["backward"] != backward:
            raise SystemExit(f"{path} has outcomes of the other direction")
        if kept.get("sources") != self.sources:
            other = kept.get("commit", "unknown")
            print(f"{path} is of another version of polyc ({other}): all begins anew", flush=True)
            return
        self.found = {n: [Outcome(*o) for o in outcomes] for n, outcomes in kept["outcomes"].items()}
        self.all_seen = set(kept["whole"])

    def outcomes(self, op: Any, most: int, end: float) -> tuple[list[Outcome], bool]:
        """Of the first `most` samples, as far as they are reached before `end`; and whether some of these are left."""
        name = op.formatted_name
        found = self.found.setdefault(name, [])
        if name not in self.all_seen and len(found) < most:
            for k, sample in enumerate(samples(op, self.backward)):
                if k < len(found):
                    continue
                if k == most or time.monotonic() > end:
                    break
                found.append(run(op, sample, self.backward))
            else:
                self.all_seen.add(name)
            self._write()
        return found[:most], name not in self.all_seen and len(found) < most

    def _write(self) -> None:
        if self.path is None:
            return
        if sources() != self.sources:  # modules are loaded when they are needed: what ran last may be of both
            raise SystemExit(f"files of polyc changed during the run: {self.path} stays as it was before")
        kept = {
            "commit": self.commit, "sources": self.sources, "backward": self.backward, "whole": sorted(self.all_seen),
            "outcomes": {n: [[o.kind, o.reason] for o in outcomes] for n, outcomes in self.found.items()},
        }  # fmt: skip
        self.path.write_text(json.dumps(kept, indent=1))


def line(name: str, found: list[tuple[str, int, Outcome]]) -> str:
    """An operator: how many samples ended how, and the first reason of each kind."""
    counts = Counter(o.kind for _, _, o in found)
    kinds = (KERNELS, EAGER, WRONG, FAILED, REFUSED, NO_GRADIENT)
    text = f"{name}: " + ", ".join(f"{counts[k]} {k}" for k in kinds if counts[k])
    for kind in (WRONG, FAILED, EAGER, REFUSED):
        seen = set()
        for info, k, outcome in found:
            if outcome.kind == kind and outcome.reason not in seen and len(seen) < 3:
                seen.add(outcome.reason)
                text += f"\n    {kind} ({info}, sample {k}): {outcome.reason[:300]}"
    return text


def summary(outcomes: dict[str, list[tuple[str, int, Outcome]]]) -> str:
    """How many operators run all their samples in kernels."""
    ran = {n: [o.kind for _, _, o in found if o.kind not in (REFUSED, NO_GRADIENT)] for n, found in outcomes.items()}
    sampled = [n for n, kinds in ran.items() if kinds]
    whole = [n for n in sampled if all(k == KERNELS for k in ran[n])]
    bad = [n for n in sampled if WRONG in ran[n] or FAILED in ran[n]]
    return (
        f"{len(whole)} of {len(sampled)} operators with samples run all of them in kernels, equal to eager mode "
        f"({len(whole) / max(len(sampled), 1):.1%}); {len(bad)} are wrong or fail: {', '.join(bad)}"
    )


if __name__ == "__main__":
    main()
