"""What further threads bring: networks and a product on one and on several threads, beside the peers, each contender
in a process of its own; and how many requests a second several callers get."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

from benchmarks.between_cores import lines_per_second
from benchmarks.cases import gemms
from benchmarks.contenders import Contender, Times, timed
from benchmarks.models import Network, networks
from benchmarks.report import geometric_mean, machine_line

GEMM = "gemm 1000x1000x1000"
SHORT = 3.0  # ms on one thread: networks under it are not judged by what threads bring


def rows(
    threads: int, peers: Sequence[str], turns: int, families: Sequence[str], packages: Path,
    folders: Sequence[Path] = (), only: Sequence[str] = (), streams: bool = False,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """One row for each case (`only`: whose name has one of these in it): least, median and 99 % of the milliseconds
    and requests a second, by system and threads; with `streams` also with as many callers of one thread each.

    Nothing is pinned. `load` is the machine's load average after it: above `threads` somebody else had a core. `lines`:
    GB/s at which one core wrote what another had read, before and after it (`benchmarks.between_cores`).
    """
    with tempfile.TemporaryDirectory() as folder:
        for n in _cases(families, packages, folders, Path(folder)):
            if not only or any(word in n.name for word in only):
                yield _row(n, threads, peers, turns, streams)


def _cases(families: Sequence[str], packages: Path, folders: Sequence[Path], folder: Path) -> Iterator[Network]:
    """A product, then the networks, one set of inputs each."""
    for c in gemms() if "gemm" in families else ():
        if c.name == GEMM:
            path = folder / "gemm.onnx"
            onnx.save(c.model, path)
            yield Network(c.name, "gemm", path, c.inputs)
    seen: set[str] = set()
    for n in networks(families, folders, packages):
        name = n.name.split()[0]
        if name not in seen:
            seen.add(name)
            yield n


def _row(n: Network, threads: int, peers: Sequence[str], turns: int, streams: bool) -> dict[str, Any]:
    systems = ("polyc", *peers)
    ways = [(1, 1), (threads, 1)] + ([(1, threads)] if streams else [])
    contenders = [Contender(p, t, s) for t, s in ways for p in systems]
    before = lines_per_second()
    times, refused = timed(n.path, n.inputs, n.bind, contenders, turns)
    lines = [round(1e-9 * x, 1) for x in (before, lines_per_second()) if x is not None]
    return {
        "case": n.name,
        "family": n.family,
        "threads": threads,
        "load": round(os.getloadavg()[0], 2),
        "lines": lines,
        "times": {str(c): t.data() for c, t in times.items()},
        "refused": {str(c): why for c, why in refused.items()},
        "ratio": {p: _gain(times, p, threads) for p in systems},
        "beside_peers": {str(t): _beside(times, t, peers) for t in (1, threads)},
    }


def _gain(times: dict[Contender, Times], system: str, threads: int) -> float | None:
    """What the threads bring to a system, by the least times."""
    one, many = times.get(Contender(system, 1)), times.get(Contender(system, threads))
    return None if one is None or many is None else round(min(one.latencies) / min(many.latencies), 3)


def _beside(times: dict[Contender, Times], threads: int, peers: Sequence[str]) -> float | None:
    """The best peer's least time by polyc's."""
    found = [min(t.latencies) for p in peers if (t := times.get(Contender(p, threads))) is not None]
    ours = times.get(Contender("polyc", threads))
    return round(min(found) / min(ours.latencies), 3) if found and ours is not None else None


def table(
    rows: Sequence[dict[str, Any]], threads: int, peers: Sequence[str], full: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Heads and cells: least ms (`full`: and median and 99 %), what threads bring, the ratio to the best peer, requests
    a second of callers where they were timed."""
    systems = ("polyc", *peers)
    ways = [str(Contender(p, t)) for p in systems for t in (1, threads)]
    callers = [str(Contender(p, 1, threads)) for p in systems]
    callers = [c for c in callers if any(c in r["times"] for r in rows)]
    heads = ["case", *(f"{w} ms" for w in ways), *(f"gain {p}" for p in systems),
             "peer: 1", f"peer: {threads}", *(f"{c} a second" for c in callers), "lines", "load"]  # fmt: skip
    form = "{min:.2f} ({p50:.2f}, {p99:.2f})" if full else "{min:.2f}"
    cells = []
    for r in rows:
        times = r["times"]
        cells.append([
            r["case"],
            *(form.format(**times[w]) if w in times else "" for w in ways),
            *(_figure(r["ratio"][p]) for p in systems),
            *(_figure(r["beside_peers"][str(t)]) for t in (1, threads)),
            *(f"{times[c]['per_second']:.1f}" if c in times else "" for c in callers),
            " ".join(f"{x:.0f}" for x in r["lines"]),
            str(r["load"]),
        ])  # fmt: skip
    return heads, cells


def _figure(x: float | None) -> str:
    return "" if x is None else f"{x:.2f}"


def summary(rows: Sequence[dict[str, Any]], threads: int) -> list[str]:
    """What is judged, a line each."""
    long = [r for r in rows if "polyc 1" in r["times"] and r["times"]["polyc 1"]["min"] > SHORT and r["ratio"]["polyc"]]
    lines = []
    if long:
        worst = min(long, key=lambda r: float(r["ratio"]["polyc"]))
        lines.append(
            f"What {threads} threads bring to polyc, {len(long)} cases over {SHORT:g} ms: geometric mean "
            f"{geometric_mean(r['ratio']['polyc'] for r in long):.2f}, least {worst['ratio']['polyc']:.2f} "
            f"({worst['case']})."
        )
    for t in dict.fromkeys((1, threads)):
        beside = {r["case"]: x for r in rows if (x := r["beside_peers"][str(t)]) is not None}
        if beside:
            case = min(beside, key=lambda c: beside[c])
            lines.append(
                f"Beside the best peer, threads {t}: geometric mean {geometric_mean(beside.values()):.2f}, least "
                f"{beside[case]:.2f} ({case})."
            )
    return lines


def page(rows: Sequence[dict[str, Any]], threads: int, peers: Sequence[str]) -> str:
    """The rows as a Markdown page."""
    heads, cells = table(rows, threads, peers)
    lines = [
        f"# {threads} threads beside one", "", f"{machine_line(peers)} {frequency_line()}", "",
        "Milliseconds: least (median, 99 %) of interleaved turns; each contender (system, threads) is a process of its",
        "own, as pools that spin would take the next one's cores. The gain is the least time with one thread by that",
        "with several; `peer` the best peer's by polyc's; `1xN` are N callers of one thread each. `lines`: GB/s at",
        "which one core wrote what another had read, before and after (a host may move a virtual machine's cores to",
        "two chiplets: a fifth). `load` is the machine's load average after it.", "", *summary(rows, threads), "",
        f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}",
        *(f"| {' | '.join(row)} |" for row in cells),
    ]  # fmt: skip
    lines += [f"\n{r['case']}: {who} cannot run it ({why})." for r in rows for who, why in r["refused"].items()]
    return "\n".join(lines) + "\n"


def frequency_line() -> str:
    """What the core's clock is, measured by a chain of additions."""
    from polyc.emit import targets
    from polyc.graph_driver.bench.calibration import machine

    return f"One core runs at {machine(targets.host(), again=True).hertz / 1e9:.2f} GHz (measured)."
