"""The page of two versions beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.report import geometric_mean, machine_line

Row = dict[str, Any]
LEAST_MEAN, LEAST = 0.98, 0.9


def speed(row: Row) -> float:
    """Old time over new: 1 for the same code, else the middle one of the runs' ratios of minima."""
    return 1.0 if row["same"] else float(median(least for least, _ in row["runs"]))


def slower(rows: Sequence[Row]) -> list[str]:
    """What breaks the limits: geometric means of families, cases that are slow in all runs, cases refused anew."""
    found = [f"{r['case']}: {r['errors'][1]}" for r in rows if "errors" in r and r["errors"][1] and not r["errors"][0]]
    for family, its in families(rows).items():
        mean = geometric_mean(speed(r) for r in its)
        if mean < LEAST_MEAN:
            found.append(f"geometric mean of {family}: {mean:.3f}")
    timed = (r for r in rows if "runs" in r)
    return found + [f"{r['case']}: {speed(r):.2f}" for r in timed if all(least < LEAST for least, _ in r["runs"])]


def families(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows that both versions compile, by family in order."""
    good = [r for r in rows if "errors" not in r]
    return {f: [r for r in good if r["family"] == f] for f in dict.fromkeys(r["family"] for r in good)}


def page(rows: Sequence[Row]) -> str:
    """All rows as Markdown."""
    commits = [", ".join(dict.fromkeys(r["commits"][k] for r in rows)) for k in (0, 1)]
    lines = [
        "# Two versions: the same code, or how fast", "", machine_line(), "",
        f"Made by `python -m benchmarks.same_code OLD`: {commits[0]} (old) beside {commits[1]} (new), one thread. Code",
        "is the same where all kernels' machine code and constants are equal byte by byte (names apart), and as many",
        "kernels are launched, as many nodes are left to the host and as large an arena is needed. Such a case counts",
        "as 1 and is not timed. The others run in turns, in three runs of 15 rounds; ratios are seconds of processors,",
        "old over new (above 1: the new version is faster), least and median of each run; a case counts with its",
        "middle run. Such a case is compiled once more with no access checked (`POLYC_CHECK=0`): whether its code is",
        "the same then. Seconds of compiling are of processors, too, from an empty cache in one process.", "",
        "| family | cases | same code | kernels | equal | geometric mean | compile s, old | new | ratio"
        " | schedule s, old | new | ratio |",
        f"| --- |{' ---: |' * 11}",
    ]  # fmt: skip
    every = families(rows)
    lines += [_family(f, its) for f, its in every.items()]
    if len(every) > 1:
        lines.append(_family("all", [r for its in every.values() for r in its]))
    lines += _different([r for its in every.values() for r in its if not r["same"]])
    refused = [r for r in rows if "errors" in r]
    if refused:
        lines += ["", "## Refused", "", "| case | old | new |", "| --- | --- | --- |"]
        lines += [f"| {r['case']} | {' | '.join(e or 'compiles' for e in r['errors'])} |" for r in refused]
    return "\n".join(lines) + "\n"


def _family(name: str, rows: Sequence[Row]) -> str:
    def seconds(what: str) -> list[str]:
        old, new = (sum(r[what][k] for r in rows) for k in (0, 1))
        return [f"{old:.1f}", f"{new:.1f}", f"{new / old:.2f}" if old else ""]

    counts = (
        len(rows),
        sum(r["same"] for r in rows),
        sum(r["kernels"][1] for r in rows),
        sum(r["equal"] for r in rows),
    )
    mean = geometric_mean(speed(r) for r in rows)
    cells = (name, *map(str, counts), f"{mean:.3f}", *seconds("seconds"), *seconds("schedule"))
    return f"| {' | '.join(cells)} |"


def _different(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    lines = [
        "", "## Other code", "",
        "| case | kernels | equal | launches | arena bytes | ratios, least / median | same without checks |",
        "| --- | --- | ---: | --- | --- | --- | --- |",
    ]  # fmt: skip
    for r in rows:
        counts = (_change(*r[n]) for n in ("kernels", "launches", "arena"))
        kernels, launches, arena = counts
        runs = ", ".join(f"{least:.2f} / {middle:.2f}" for least, middle in r["runs"])
        lines.append(f"| {r['case']} | {kernels} | {r['equal']} | {launches} | {arena} | {runs} | {_yes(r)} |")
    return lines


def _yes(row: Row) -> str:
    return "yes" if row["unchecked"] else "no"


def _change(old: int, new: int) -> str:
    return str(new) if old == new else f"{old} -> {new}"
