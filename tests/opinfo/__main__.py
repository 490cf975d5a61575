"""`python -m tests.opinfo [--backward] [--table FILE] [OPERATOR ...]`: coverage of core ATen operators."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from .cases import BORROWED, borrowed, cases, samples
from .runs import EAGER, FAILED, KERNELS, REFUSED, WRONG, Outcome, run


def main() -> None:
    """Run the samples and print a line for each operator."""
    parser = argparse.ArgumentParser(prog="python -m tests.opinfo", description=__doc__)
    parser.add_argument("operators", nargs="*", help="core ATen operators, all by default")
    parser.add_argument("--backward", action="store_true", help="gradients, of operators that have them")
    parser.add_argument("--most", type=int, default=1 << 30, help="samples of an OpInfo at most")
    parser.add_argument("--json", type=Path, help="outcomes of each operator, written here")
    parser.add_argument("--borrow", action="store_true", help="find OpInfos for operators without, write borrowed.json")
    args = parser.parse_args()
    if args.borrow:
        BORROWED.write_text(json.dumps(borrowed(), indent=1) + "\n")
        return
    outcomes: dict[str, list[tuple[str, int, Outcome]]] = {}
    began = time.monotonic()
    for name, infos in cases(args.operators).items():
        outcomes[name] = []
        for op in infos:
            if args.backward and not op.supports_autograd:
                continue
            for k, sample in enumerate(samples(op, args.backward)):
                if k == args.most:
                    break
                outcomes[name].append((op.formatted_name, k, run(op, sample, args.backward)))
        print(line(name, outcomes[name]), flush=True)
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    if args.json:
        plain = {n: [[i, k, o.kind, o.reason] for i, k, o in found] for n, found in outcomes.items()}
        args.json.write_text(json.dumps(plain, indent=1))
    print(summary(outcomes))


def line(name: str, found: list[tuple[str, int, Outcome]]) -> str:
    """An operator: how many samples ended how, and the first reason of each kind."""
    counts = Counter(o.kind for _, _, o in found)
    text = f"{name}: " + ", ".join(f"{counts[k]} {k}" for k in (KERNELS, EAGER, WRONG, FAILED, REFUSED) if counts[k])
    for kind in (WRONG, FAILED, EAGER, REFUSED):
        seen = set()
        for info, k, outcome in found:
            if outcome.kind == kind and outcome.reason not in seen and len(seen) < 3:
                seen.add(outcome.reason)
                text += f"\n    {kind} ({info}, sample {k}): {outcome.reason[:300]}"
    return text


def summary(outcomes: dict[str, list[tuple[str, int, Outcome]]]) -> str:
    """How many operators run all their samples in kernels."""
    ran = {n: [o.kind for _, _, o in found if o.kind != REFUSED] for n, found in outcomes.items()}
    sampled = [n for n, kinds in ran.items() if kinds]
    whole = [n for n in sampled if all(k == KERNELS for k in ran[n])]
    bad = [n for n in sampled if WRONG in ran[n] or FAILED in ran[n]]
    return (
        f"{len(whole)} of {len(sampled)} operators with samples run all of them in kernels, equal to eager mode "
        f"({len(whole) / max(len(sampled), 1):.1%}); {len(bad)} are wrong or fail: {', '.join(bad)}"
    )


if __name__ == "__main__":
    main()
