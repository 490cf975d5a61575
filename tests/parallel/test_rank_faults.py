"""Ranks that die, stop, fail or do not fit: one line on each of the others within ten seconds, and no hang."""

from __future__ import annotations

import random
import re
import tempfile
import time
from pathlib import Path

import pytest

from tests.parallel.mpi_runs import started

LIMIT = 10.0  # seconds from the fault to the end
AT_ONCE = ("version", "weights", "shapes")  # found before the first step
LATER = ("killed", "raises", "inputs", "returns", "exits", "stopped")


def lines(text: str) -> dict[int, list[str]]:
    """What each rank says in lines of polyc."""
    found: dict[int, list[str]] = {}
    for rank, said in re.findall(r"^polyc: rank (\d+): (.*)$", text, re.MULTILINE):
        found.setdefault(int(rank), []).append(said)
    return found


def check(kind: str, ranks: int, victim: int, step: int, *flags: str) -> None:
    """One fault."""
    with tempfile.TemporaryDirectory() as logs:  # what ranks said, also where the launcher dropped it
        env = {"POLYC_RANK_LOGS": logs}
        done = started(ranks, "fault", kind, str(victim), str(step), flags=flags, timeout=120, env=env)
        ended = time.time()
        said = lines("".join(path.read_text(encoding="utf-8") for path in sorted(Path(logs).iterdir())))
    assert all(text in said[rank] for rank, some in lines(done.stderr).items() for text in some), done.stderr[-2000:]
    others = set(range(ranks)) - {victim}
    assert others <= set(said), (kind, done.stderr[-2000:])
    for rank in others:
        assert len(said[rank]) == 1, (kind, said)
    if kind in AT_ONCE:
        words = {
            "version": "version of a package",
            "weights": "parameters of the training",
            "shapes": "shape of the inputs",
        }
        assert all(words[kind] in text for some in said.values() for text in some), said
        assert victim in said
        ready = max(map(float, re.findall(r'"ready": ([0-9.]+)', done.stdout)))
        assert ended - ready < LIMIT, (kind, ended - ready)
    else:
        (failed,) = re.findall(r'"failed": ([0-9.]+)', done.stdout)
        assert ended - float(failed) < LIMIT + 5.0 * (kind == "stopped"), (kind, ended - float(failed))
        assert any(f"rank {victim} is gone" in text for some in said.values() for text in some), said


@pytest.mark.parametrize("kind", ["killed", pytest.param("weights", marks=pytest.mark.long)])
def test_a_fault_is_one_line_on_every_rank(kind: str) -> None:
    check(kind, 3, 1, 3)


@pytest.mark.long
@pytest.mark.parametrize("kind", [*AT_ONCE, *LATER])
def test_every_kind_of_fault(kind: str) -> None:
    check(kind, 2, 0, 2)
    check(kind, 3, 2, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(82))
def test_faults_at_random_steps(seed: int) -> None:
    rng = random.Random(seed)
    ranks = rng.choice([2, 3])
    check(rng.choice([k for k in LATER if k != "stopped"]), ranks, rng.randrange(ranks), rng.randrange(30))
