"""What compiling took, from its spans: a table, and a trace for chrome://tracing or Perfetto."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from polyc.poly.spans import Span
from polyc.poly.words import counted

SLOWEST = 8  # kernels that are listed
SHORT = 0.005  # seconds of the clock below which a stage is left to the trace


def timings(spans: Sequence[Span]) -> list[str]:
    """Lines: the stages with what they consist of, then the kernels and their stages, added up, and the slowest.

    Seconds are those of the clock, then those of a processor; what a stage repeats is added up.
    """
    here = [s for s in spans if s.process == _first(spans).process] if spans else []
    lines = ["timings  seconds: of the clock, of a processor", *_nested(here, 0)]
    kernels = [s for s in spans if s.name == "kernel"]
    if not kernels:
        return lines
    processes = len({k.process for k in kernels})
    where = f"{counted(len(kernels), 'kernel')} in {counted(processes, 'process', 'processes')}"
    lines.append(f"         {where}: {_times(kernels)}")
    parts = [s for s in spans if any(_within(s, k) for k in kernels)]
    lines += [f"           {name:<24}{_times(each)}" for name, each in _by_name(_outermost(parts)).items()]
    lines.append("         those that took longest:")
    for kernel in sorted(kernels, key=lambda k: k.processor, reverse=True)[:SLOWEST]:
        inside = _by_name(_outermost([s for s in parts if _within(s, kernel)]))
        each = ", ".join(f"{name} {sum(s.processor for s in found):.2f}" for name, found in inside.items())
        about = kernel.about
        lines.append(f"           {kernel.processor:.2f}  {about.get('kernel', '')} '{about.get('node', '')}': {each}")
    return lines


def chrome_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """The spans as a Chrome trace: microseconds since the first began; in `args` the seconds of a processor, and what
    a span says of itself."""
    start = min((s.start for s in spans), default=0.0)
    main = _first(spans).process if spans else 0
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": pid, "tid": pid,
         "args": {"name": "polyc" if pid == main else f"compiler {pid}"}}
        for pid in sorted({s.process for s in spans})
    ]  # fmt: skip
    for s in sorted(spans, key=lambda s: (s.start, -s.end)):
        shown = f"{s.about['kernel']} '{s.about['node']}'" if s.name == "kernel" and "node" in s.about else s.name
        events.append({
            "name": shown, "cat": s.name, "ph": "X", "ts": round(1e6 * (s.start - start), 1),
            "dur": round(1e6 * (s.end - s.start), 1), "pid": s.process, "tid": s.process,
            "args": {"processor": round(s.processor, 6), **s.about},
        })  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _first(spans: Sequence[Span]) -> Span:
    return min(spans, key=lambda s: s.start)


def _within(inner: Span, outer: Span) -> bool:
    """Whether one lies in the other, and is not the other."""
    inside = inner.process == outer.process and outer.start <= inner.start and inner.end <= outer.end
    return inside and inner is not outer


def _outermost(spans: Sequence[Span]) -> list[Span]:
    """Those that lie in no other of them, by their starts."""
    found: list[Span] = []
    for s in sorted(spans, key=lambda s: (s.process, s.start, -s.end)):
        if not found or not _within(s, found[-1]):
            found.append(s)
    return sorted(found, key=lambda s: s.start)


def _by_name(spans: Sequence[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = defaultdict(list)
    for s in spans:
        found[s.name].append(s)
    return dict(found)


def _nested(spans: Sequence[Span], depth: int) -> list[str]:
    lines = []
    for name, outer in _by_name(_outermost(spans)).items():
        if name == "kernel" or sum(s.end - s.start for s in outer) < SHORT:
            continue
        lines.append(f"         {'  ' * depth}{name:<{26 - 2 * depth}}{_times(outer)}")
        lines += _nested([s for s in spans if any(_within(s, o) for o in outer)], depth + 1)
    return lines


def _times(spans: Sequence[Span]) -> str:
    return f"{sum(s.end - s.start for s in spans):7.2f} {sum(s.processor for s in spans):7.2f}"
