"""A kernel's row: times of all contenders, who was wrong, and polyc's ratio to the best correct peer."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.polybench.contender import Task
from benchmarks.polybench.race import Race
from benchmarks.polybench.sources import ORACLE, Folders, peers
from benchmarks.polybench.subjects import CLASS_OF, INTEGERS, TOLERANCE, defined, difference, subject
from benchmarks.polybench.tasks import Case
from polyc.poly.records import dataclass

SMALLEST = "MINI"  # where the oracle is compared with NumPy


@dataclass(frozen=True)
class Setting:
    """What a run measures: see the options of `python -m benchmarks --family polybench`."""

    folders: Folders
    size: str
    single: bool
    threads: int
    symbolic: bool
    seed: int
    seconds: float
    limit: float
    known: Mapping[tuple[str, int], float]
    alone: bool = False


def known_times(path: Path | None, size: str, single: bool) -> dict[str, dict[tuple[str, int], float]]:
    """Seconds by kernel, of peer and threads, from a CSV file (kernel, peer, dtype, size, threads, seconds)."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    if path is None:
        return found
    with path.open(encoding="utf-8") as file:
        for r in csv.DictReader(file):
            dtype = "int" if r["kernel"] in INTEGERS else "float" if single else "double"
            if r["size"] == size and r["dtype"] in (dtype, "double" if dtype == "int" else dtype):
                found.setdefault(r["kernel"], {})[r["peer"], int(r["threads"])] = float(r["seconds"])
    return found


def row(kernel: str, setting: Setting) -> dict[str, Any]:
    """Everything about a kernel, as JSON holds it. Times are milliseconds: least, median of the turns."""
    case = Case(subject(kernel, setting.size, setting.single, setting.seed), setting.size, setting.single, setting.seed)
    tasks = {f"polyc {t}": case.of_polyc(t, setting.symbolic) for t in sorted({1, setting.threads})}
    if setting.symbolic:
        tasks |= {f"polyc specialised {t}": case.of_polyc(t) for t in sorted({1, setting.threads})}
    failed: dict[str, str] = {}
    for peer in [] if setting.alone else peers(setting.threads, setting.folders.pluto is not None):
        name = f"{peer.name} {peer.threads}"
        try:
            tasks[name] = case.of_c(peer, setting.folders)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            failed[name] = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
    wanted = oracle(case, setting)
    tasks = {name: replace(task, pinned=setting.threads == 1) for name, task in tasks.items()}
    with Race(tasks, setting.limit) as race:
        apart = {n: _worst(case, results, wanted) for n, results in race.results.items()}
        wrong = {n: d for n, d in apart.items() if not d <= _tolerance(case)}
        for name in wrong:
            race.leave_out(name)
        race.run(setting.seconds)
    ms = {n: [1e3 * least, 1e3 * middle] for n, (least, middle) in race.times.items()}
    made: dict[str, Any] = {
        "kernel": kernel, "class": CLASS_OF[kernel], "size": setting.size, "single": setting.single,
        "threads": setting.threads, "symbolic": setting.symbolic, "ms": ms,
        "compile": {n: s for n, s in race.compiling.items() if n.startswith("polyc")}, "difference": apart,
        "wrong": sorted(wrong), "late": race.late, "failed": failed | race.failed,
        "estimated": _estimated(ms, setting.known, setting.threads),
    }  # fmt: skip
    return made | _ratios(made) | _of_specialised(made)


def _estimated(ms: Mapping[str, Any], known: Mapping[tuple[str, int], float], threads: int) -> dict[str, float]:
    """Milliseconds of peers that this run did not build: gcc's of this run times the ratio known from elsewhere."""
    base = known.get(("gccf", 1))
    if base is None or "gccf 1" not in ms:
        return {}
    others = {f"{p} {t}": s for (p, t), s in known.items() if t <= threads}
    return {n: ms["gccf 1"][0] * s / base for n, s in others.items() if n not in ms}


def _of_specialised(made: Mapping[str, Any]) -> dict[str, float]:
    """How fast the kernel for all sizes is beside that for these."""
    names = (f"polyc specialised {made['threads']}", f"polyc {made['threads']}")
    if any(n not in made["ms"] or n in made["wrong"] for n in names):
        return {}
    known, symbolic = (made["ms"][n][0] for n in names)
    return {"of_specialised": known / symbolic}


def _ratios(made: Mapping[str, Any]) -> dict[str, Any]:
    wrong = set(made["wrong"])
    of_peers = {n: v[0] for n, v in made["ms"].items() if not n.startswith("polyc") and n not in wrong}
    of_peers |= {n: v for n, v in made["estimated"].items() if n not in wrong}
    ours = f"polyc {made['threads']}"
    if ours not in made["ms"] or ours in wrong or not of_peers:
        return {"best": None, "ratio": None, "over_gcc": None}
    best = min(of_peers, key=lambda n: of_peers[n])
    time, gcc = made["ms"][ours][0], of_peers.get("gccf 1")
    return {"best": best, "ratio": of_peers[best] / time, "over_gcc": gcc / time if gcc else None}


# ---- results -------------------------------------------------------------------------------------


def _worst(case: Case, results: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    name, sizes = case.given.name, case.given.sizes
    pairs = ((defined(name, sizes, a), defined(name, sizes, b)) for a, b in zip(results, wanted, strict=True))
    return max(difference(a, b) for a, b in pairs)


def _tolerance(case: Case) -> float:
    return 0.0 if case.given.name in INTEGERS else TOLERANCE[4 if case.single else 8]


def oracle(case: Case, setting: Setting) -> list[np.ndarray]:
    """float64 results for the inputs: PolyBench's own C without reassociation, which agrees with NumPy at MINI.

    Kept in the cache folder, since some kernels take a while.

    Raises:
        RuntimeError: C and the NumPy reference differ.
    """
    task = case.of_c(ORACLE, setting.folders, in_double=True)
    kind = "f32" if case.single else "f64"
    name = f"{Path(str(task.library)).stem}-{kind}-{setting.seed}.npz"
    path = setting.folders.built / name
    if not path.exists():
        _agrees_with_numpy(case, setting)
        made = dict(zip(map(str, range(99)), _run(task), strict=False))
        np.savez(path, **made)  # type: ignore[arg-type]
    with np.load(path) as saved:
        return [saved[k] for k in saved.files]


def _agrees_with_numpy(case: Case, setting: Setting) -> None:
    small = Case(subject(case.given.name, SMALLEST, False, setting.seed), SMALLEST, False, setting.seed)
    got = _run(small.of_c(ORACLE, setting.folders))
    wanted = small.given.reference(**small.given.values, **small.given.constants)
    if (apart := max(difference(a, b) for a, b in _pairs(got, wanted))) > TOLERANCE[8]:
        raise RuntimeError(f"{case.given.name}: PolyBench's C and the NumPy reference differ by {apart:.1e}")


def _pairs(got: list[np.ndarray], wanted: tuple[np.ndarray, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return zip(got, wanted, strict=True)


def _run(task: Task) -> list[np.ndarray]:
    with Race({"oracle": task}, limit=3600.0) as race:
        if race.failed:
            raise RuntimeError(race.failed["oracle"])
        return race.results["oracle"]
