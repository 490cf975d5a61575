"""The page of PolyBench: a row for each kernel, geometric means by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.polybench.subjects import CLASSES
from benchmarks.report import geometric_mean, machine_line

Row = dict[str, Any]


def page(rows: Sequence[Row]) -> str:
    """The rows as Markdown; all rows are of one size, type and number of threads."""
    first = rows[0]
    threads, columns = first["threads"], _columns(rows)
    ours = [f"polyc {t}" for t in sorted({1, threads})]
    beside = [f"polyc specialised {t}" for t in sorted({1, threads})] if first["symbolic"] else []
    kind = "f32" if first["single"] else "f64"
    head = ["kernel", *ours, *beside, *columns, "best correct peer", "ratio", "over gcc", "compile s"]
    lines = [
        f"# PolyBench/C at {first['size']}, {kind}, {threads} thread{'s' * (threads > 1)}", "", machine_line(), "",
        "Made by `python -m benchmarks --family polybench`. Milliseconds, the least of interleaved turns, each",
        "contender in a process of its own, calls from Python excluded; random inputs.",
        "polyc's sizes are symbolic." if first["symbolic"] else "Sizes are known to all.",
        "Columns say peer and threads: `gccf`, `clangf`: `-O3 -march=native -ffast-math`; `polly`: clang with `-mllvm",
        "-polly`; `pollyp`: with `-polly-parallel`; `plutocl`: Pluto's output by clang. Ratio: the best correct peer's",
        "time over polyc's, above 1 polyc is faster. `~` marks a time that is gcc's of this run times a ratio measured",
        "elsewhere (`--peers`), `wrong` what differs from float64 by more than rounding, `slow` what passed the limit.",
        "Integers where PolyBench has them.",
        "", f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}",
    ]  # fmt: skip
    for r in sorted(rows, key=lambda r: (list(CLASSES).index(r["class"]), r["kernel"])):
        cells = [_time(r, c) for c in (*ours, *beside, *columns)]
        seconds = r["compile"].get(ours[-1])
        compiled = "" if seconds is None else f"{seconds:.2f}"
        lines.append(
            f"| {r['kernel']} | {' | '.join(cells)} | {r['best'] or ''} {'~' * (r['best'] in r['estimated'])} | "
            f"{_number(r['ratio'])} | {_number(r['over_gcc'])} | {compiled} |"
        )
    return "\n".join([*lines, "", *_means(rows), "", *_faults(rows, ours)]) + "\n"


def _columns(rows: Sequence[Row]) -> list[str]:
    """Peers that were run; of the estimated ones only the best shows, beside its ratio."""
    found = dict.fromkeys(n for r in rows for n in (*r["ms"], *r["late"], *r["failed"]) if not n.startswith("polyc"))
    return list(found)


def _time(r: Row, name: str) -> str:
    if name in r["wrong"]:
        return "wrong"
    if name in r["late"]:
        return "slow"
    if name in r["failed"]:
        return "failed"
    return _milliseconds(r["ms"][name][0]) if name in r["ms"] else ""


def _milliseconds(ms: float) -> str:
    return f"{ms:.1f}" if ms >= 100 else f"{ms:.2f}" if ms >= 1 else f"{ms:.5f}"


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}"


def _means(rows: Sequence[Row]) -> list[str]:
    lines = ["| class | kernels | over the best peer | least | over gcc |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, chosen in [*((c, [r for r in rows if r["class"] == c]) for c in CLASSES), ("all", list(rows))]:
        timed = [r for r in chosen if r["ratio"] is not None]
        if timed:
            least = min(timed, key=lambda r: r["ratio"])
            lines.append(
                f"| {name} | {len(timed)} | {_mean(r['ratio'] for r in timed)} | "
                f"{least['ratio']:.2f} ({least['kernel']}) | {_mean(r['over_gcc'] for r in timed)} |"
            )
    beside = [r["of_specialised"] for r in rows if "of_specialised" in r]
    if beside:
        least = min((r for r in rows if "of_specialised" in r), key=lambda r: r["of_specialised"])
        lines += ["", f"Kernels for all sizes, beside those for these: {_mean(beside)} as fast in the geometric mean, "
                  f"least {least['of_specialised']:.2f} ({least['kernel']})."]  # fmt: skip
    seconds = [s for r in rows for n, s in r["compile"].items() if n == f"polyc {r['threads']}"]
    if seconds:
        lines += ["", f"Compiling polyc's kernels: median {median(seconds):.2f} s, longest {max(seconds):.2f} s."]
    return lines


def _mean(values: Iterable[float | None]) -> str:
    return f"{geometric_mean(v for v in values if v is not None):.2f}"


def _faults(rows: Sequence[Row], ours: Sequence[str]) -> list[str]:
    """Peers that were wrong, with the difference; kernels that lose by more threads; what failed."""
    lines = [f"* {r['kernel']}: {n} differs by {r['difference'][n]:.1e}." for r in rows for n in r["wrong"]]
    lines += [f"* {r['kernel']}: {n} failed: {text}" for r in rows for n, text in r["failed"].items()]
    if len(ours) > 1:
        one, more = ours
        both = [r for r in rows if one in r["ms"] and more in r["ms"]]
        gains = {r["kernel"]: r["ms"][one][0] / r["ms"][more][0] for r in both}
        if gains:
            slow = ", ".join(f"{k} {g:.2f}" for k, g in gains.items() if g < 1)
            lines.append(f"* {more} over {one}: geometric mean {geometric_mean(gains.values()):.2f}, "
                         f"slower: {slow or 'none'}.")  # fmt: skip
    return lines
