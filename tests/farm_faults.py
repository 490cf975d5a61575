"""`python -m tests.farm_faults [--count 50] [--seed S] [--json FILE]`: faults put into Dask clusters at work.

Each fault has a cluster of its own, workers and scheduler as processes. In the end every piece of work has been
answered once, rightly, or one line has said why not within ten seconds of the fault; what was answered before is kept,
and nothing is half written.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyc.graph_driver.farm import farm as farms
from polyc.graph_driver.farm.farm import Farm, Work
from polyc.graph_driver.farm.opening import farm_at
from polyc.poly.errors import BuildError
from tests.farm.clusters import ROOT, Cluster, cluster
from tests.farm.pieces import broken, full, slowly

PIECES, SECONDS = 5, 0.3
SOON, IN_ALL = 10.0, 90.0  # seconds: until a line says what is lost, and until work that can be done is done
SILENT = 4.0  # seconds, instead of 15, so that fifty faults take minutes


def worked(farm: Farm, folder: Path, fault: Callable[[], None], after: int, rng: random.Random) -> dict[str, Any]:
    """Numbered work with a fault in the middle of it: after some answers and a while."""
    needs = farm.need(None)
    for k in range(PIECES):
        text = json.dumps({"number": k, "seconds": SECONDS, "log": str(folder / "log")})
        farm.give(Work(slowly, text, needs, 10.0, f"piece {k}"))
    answers: list[str] = []
    struck = 0.0
    start = time.monotonic()
    try:
        while len(answers) < PIECES and time.monotonic() - start < IN_ALL:
            if not struck and len(answers) >= after:
                time.sleep(rng.random() * SECONDS)
                fault()
                struck = time.monotonic()
            if answer := farm.take(0.2):
                answers.append(answer.text or answer.error)
    except BuildError as error:
        return {"answers": answers, "line": str(error), "seconds": round(time.monotonic() - struck, 1)}
    return {"answers": answers, "line": "", "seconds": round(time.monotonic() - struck, 1)}


def on_cluster(folder: Path, rng: random.Random, strike: Callable[[Cluster], None], lost: bool) -> str:
    """ "" if a fault did no harm, else what it did. `lost`: it ends the work."""
    with cluster(folder, 2) as found, farm_at(found.address) as farm:
        got = worked(farm, folder, lambda: strike(found), rng.randrange(PIECES - 1), rng)
    right = {str(k * k) for k in range(PIECES)}
    if len(set(got["answers"])) != len(got["answers"]) or not set(got["answers"]) <= right:
        return f"wrong answers: {got}"
    if lost:
        whole = "does not answer any more" in got["line"] and "\n" not in got["line"] and got["seconds"] <= SOON
        return "" if whole or len(got["answers"]) == PIECES else f"no line in time: {got}"
    return "" if set(got["answers"]) == right and not got["line"] else f"lost answers: {got}"


def worker_killed(folder: Path, rng: random.Random) -> str:
    """A worker dies."""
    return on_cluster(folder, rng, lambda c: c.kill(rng.choice(["w0", "w1"])), False)


def worker_stopped(folder: Path, rng: random.Random) -> str:
    """A worker hangs."""
    return on_cluster(folder, rng, lambda c: c.pause(rng.choice(["w0", "w1"])), False)


def all_workers_replaced(folder: Path, rng: random.Random) -> str:
    """All workers die, and one comes."""

    def strike(c: Cluster) -> None:
        c.kill("w0")
        c.kill("w1")
        c.worker("w2")

    return on_cluster(folder, rng, strike, False)


def scheduler_killed(folder: Path, rng: random.Random) -> str:
    """The scheduler dies."""
    return on_cluster(folder, rng, lambda c: c.kill("scheduler"), True)


def scheduler_stopped(folder: Path, rng: random.Random) -> str:
    """The scheduler hangs."""
    return on_cluster(folder, rng, lambda c: c.pause("scheduler"), True)


def other_version(folder: Path, rng: random.Random) -> str:
    """A worker has another polyc, or none."""
    other = folder / "other"
    other.mkdir()
    name = rng.choice(["sitecustomize.py", "polyc.py"])
    text = "import polyc.graph_driver.worker.jobs as j; j.fingerprint = lambda: 'x'"
    (other / name).write_text(text if name.startswith("site") else "")
    with cluster(folder, 1, afresh=True, PYTHONPATH=f"{other}:{ROOT}") as found, farm_at(found.address) as farm:
        start = time.monotonic()
        try:
            farm.need(None)
        except BuildError as error:
            return "" if "\n" not in str(error) and time.monotonic() - start < SOON else f"late: {error}"
        return "it was used"


def refusals(folder: Path, rng: random.Random) -> str:
    """A worker's disk is full, or its code has a bug: the piece says so, the others are done."""
    with cluster(folder, 1) as found, farm_at(found.address) as farm:
        needs = farm.need(None)
        farm.give(Work(rng.choice([full, broken]), "x", needs, 10.0, "bad"))
        got = worked(farm, folder, lambda: None, PIECES, rng)["answers"]
    bad = [a for a in got if not a.isdigit()]
    said = len(bad) == 1 and ("No space left" in bad[0] or "ZeroDivisionError" in bad[0])
    return "" if said else f"not said: {got}"


def client_killed(folder: Path, rng: random.Random) -> str:
    """`polyc tune` dies at any moment; what it had found is whole, and the same command goes on."""
    return _tuned(folder, rng.uniform(4.0, 9.0), {})


def full_database(folder: Path, rng: random.Random) -> str:
    """The database cannot be written."""
    place = folder / "cache"
    place.mkdir()
    (place / "tuning").write_text("no folder")
    words = _tune_words("local:1", 2)
    start = time.monotonic()
    done = subprocess.run(
        words, env=os.environ | {"POLYC_CACHE": str(place)}, capture_output=True, text=True, timeout=IN_ALL, cwd=ROOT
    )
    line = done.stderr.strip()
    whole = done.returncode == 1 and "cannot write the tuning database" in line and "\n" not in line
    return "" if whole else f"{done.returncode} after {time.monotonic() - start:.0f} s: {line[-300:]}"


def _tune_words(where: str, trials: int) -> list[str]:
    words = f"tune examples/matmul.py:matmul --dim M=16 --dim N=16 --dim K=16 --threads 1 --trials {trials} --json"
    return [sys.executable, "-m", "polyc.graph_driver.cli", *words.split(), "--dask", where]


def _tuned(folder: Path, seconds: float, variables: dict[str, str]) -> str:
    environment = os.environ | {"POLYC_CACHE": str(folder / "cache")} | variables
    first = subprocess.Popen(
        _tune_words("local:2", 5), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    time.sleep(seconds)
    first.kill()
    first.wait()
    records = list((folder / "cache" / "tuning").glob("*.json"))
    before = json.loads(records[0].read_text())["record"]["trials"] if records else {}
    again = subprocess.run(
        _tune_words("local:2", 5), env=environment, capture_output=True, text=True, timeout=IN_ALL, cwd=ROOT
    )
    if again.returncode:
        return again.stderr[-300:]
    record = json.loads(next((folder / "cache" / "tuning").glob("*.json")).read_text())["record"]
    kept = {name: record["trials"].get(name) for name in before} == before
    return "" if kept and sum(t[3] for t in record["trials"].values()) == 5 else f"lost: {before} {record['trials']}"


FAULTS = (
    worker_killed, worker_stopped, scheduler_killed, other_version, all_workers_replaced, scheduler_stopped, refusals,
    client_killed, worker_killed, full_database,
)  # fmt: skip


def one(seed: int, number: int) -> dict[str, Any]:
    """Fault `number` of a campaign: its name, the harm that it did ("": none) and its seconds."""
    rng, fault = random.Random(f"{seed} {number}"), FAULTS[number % len(FAULTS)]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            harm = fault(Path(folder), rng)
        except Exception as error:
            harm = f"{type(error).__name__}: {error}"
    return {"fault": fault.__name__, "harm": harm, "seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.farm_faults", description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    farms.SILENT = SILENT
    rows = []
    for k in range(options.count):
        rows.append(one(options.seed, k))
        print(k, rows[-1], flush=True)
    bad = [r for r in rows if r["harm"]]
    print(f"seed {options.seed}: {len(rows)} faults, {len(bad)} did harm")
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
