"""`python -m benchmarks.legality [KERNEL...]`: CPU time of dependences, legality checks and automatic schedules.

On the PolyBench kernels with symbolic sizes. `dependences` is the first analysis of a kernel;
`checks` are all single steps reverse, parallel, interchange, skew, tile, fuse and distribute of its
loops, accepted and refused alike, each with the complete check of its result (`edit`: the longest
making of a tree); `automatic` is a whole automatic schedule from scratch, `its check` the check of
the tree that it found.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from examples import polybench
from polyc.emit.targets import host
from polyc.poly.dependences import conflicts
from polyc.poly.errors import ScheduleError
from polyc.poly.legality import is_legal
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic


def seconds(work: Callable[[], Any]) -> float:
    """CPU time of this thread."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def steps(s: Schedule) -> Iterator[tuple[str, dict[str, Any]]]:
    """Single transformations of all loops, pairs of neighbours and runs of three."""
    names = list(s.loops)
    for a in names:
        yield from (("reverse", {"loop": a}), ("parallel", {"loop": a}), ("distribute", {"loop": a}))
    for a, b in zip(names, names[1:], strict=False):
        yield from (("interchange", {"a": a, "b": b}), ("skew", {"loop": b, "by": a, "factor": 1}))
        yield from (("fuse", {"a": a, "b": b}), ("tile", {"loops": [a, b], "sizes": [32, 32]}))
    for k in range(len(names) - 2):
        yield "tile", {"loops": names[k : k + 3], "sizes": [32, 32, 32]}


def step_times(scop: Scop) -> list[tuple[float, float, str]]:
    """(check, edit of the tree, the step) for each step that makes sense; the first analysis is done."""
    s = replace(Schedule.start(scop), terse=True, _deferred=True)
    is_legal(scop, scop.tree)
    found = []
    for name, arguments in steps(s):
        start = time.thread_time()
        try:
            tree = getattr(s, name)(**arguments).tree
        except ScheduleError:
            continue
        edited = time.thread_time()
        is_legal(scop, tree)
        found.append((time.thread_time() - edited, edited - start, f"{name} {arguments}"))
    return sorted(found)


def row(name: str) -> dict[str, Any]:
    kernel = polybench.load(name)
    _, constants = kernel.arguments("MINI")
    scop = kernel.operator.scop(**constants)
    times = step_times(scop)
    made = automatic(scop, host(), threads=2)
    return {
        "dependences": seconds(lambda: conflicts(replace(scop))),  # caches follow the object
        "checks": len(times),
        "median": times[len(times) // 2][0],
        "worst": times[-1][0],
        "edit": max(t[1] for t in times),
        "automatic": seconds(lambda: automatic(replace(scop), host(), threads=2)),
        "its check": seconds(lambda: is_legal(scop, made.tree)),
        "which": times[-1][2],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.legality", description=__doc__)
    parser.add_argument("kernels", nargs="*", help="default: all thirty")
    parser.add_argument("--which", action="store_true", help="name the step whose check took longest")
    options = parser.parse_args()
    print(f"{'milliseconds of CPU':<20} {'dependences':>11} {'checks':>6} {'median':>6} {'worst':>6} {'edit':>6} "
          f"{'automatic':>9} {'its check':>9}")  # fmt: skip
    for name in options.kernels or polybench.MODULES:
        r = row(name)
        ms = {k: 1000 * v for k, v in r.items() if isinstance(v, float)}
        print(f"{name:<20} {ms['dependences']:11.1f} {r['checks']:6d} {ms['median']:6.2f} {ms['worst']:6.2f} "
              f"{ms['edit']:6.1f} {ms['automatic']:9.0f} {ms['its check']:9.2f}"
              f"{'  ' + r['which'] if options.which else ''}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
