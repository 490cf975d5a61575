"""The campaign of random programs: a few of them, and that wrong results, crashes and hangs are noticed."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import campaign
import fuzz
import pytest
from campaign import check_c, check_llvm, plan_of, program_of
from differential import private_cache, smallest
from fork_server import Lost, serve
from fuzz import PAGE
from seed_pages import Block, missing

from polyc.emit.kernel import Kernel


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "")  # restored afterwards
    private_cache()


def test_a_few_of_the_campaign() -> None:
    prepared = []
    for seed in range(60):
        failure, work = check_llvm(seed)
        assert failure is None, f"seed {seed}: {failure}"
        prepared += [work] if work else []
    assert len(prepared) == 6 and not check_c(prepared)


def test_every_kind_of_program_has_its_share() -> None:
    plans = [plan_of(seed) for seed in range(4000)]
    count = Counter(plan.slice.name for plan in plans)
    assert all(abs(count[s.name] / 40 - s.weight) < 3 for s in campaign.SLICES)
    assert sum(plan.c for plan in plans) == sum(plan.o3 for plan in plans) == 400
    assert len({(p.slice.name, p.order, p.c) for p in plans}) == 2 * sum(len(set(s.schedules)) for s in campaign.SLICES)


def test_the_slices_hold_what_they_are_named_for() -> None:
    texts: dict[str, str] = {}
    for seed in range(600):
        texts[plan_of(seed).slice.name] = texts.get(plan_of(seed).slice.name, "") + program_of(seed).source
    for name, pieces in {
        "indices": ("idx[", "range(ptr[", "range(cnt["),
        "scalars": ("alpha", "beta0", "beta1", "range(nN)", "range(1, n"),
        "reductions": (
            "s = max(s,",
            " -= ",
            "where(",
            " > s:",
            "s +=",
            "R0[i, j] +=",
            "+ l]",
            "else s",
            "range(min(i + 1",
        ),
        "jumps": ("while ", "while True:", "break", "continue", "else:", "shifted(", "lowered(", "grid("),
    }.items():
        for piece in pieces:
            assert piece in texts[name], (name, piece)


def test_aliases_overlap_and_are_refused_or_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both answers occur; a kernel that forgets to look is found."""
    seeds = [seed for seed in range(2000) if plan_of(seed).slice.aliases and not plan_of(seed).o3][:60]
    answers: Counter[str] = Counter()
    honest = Kernel._separate

    def counting(self: Kernel, arrays: Any, results: Any) -> None:
        before = list(map(id, arrays))
        try:
            honest(self, arrays, results)
        except Exception:
            answers["refused"] += 1
            raise
        answers["copied"] += before != list(map(id, arrays))

    monkeypatch.setattr(Kernel, "_separate", counting)
    assert not any(check_llvm(seed)[0] for seed in seeds)
    assert answers["refused"] >= 3 and answers["copied"] >= 3, answers
    monkeypatch.setattr(Kernel, "_separate", lambda self, arrays, results: None)
    assert any(check_llvm(seed)[0] for seed in seeds)


def test_a_wrong_result_is_noticed_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Kernel.run

    def lossy(self: Kernel, arrays: Any, bound: Any) -> None:
        honest(self, arrays, bound)
        arrays[self._order[-1]].flat[0] += 1

    monkeypatch.setattr(Kernel, "run", lossy)
    seed = next(s for s in range(100) if plan_of(s).slice.name == "reductions" and not plan_of(s).o3)
    failure, _ = check_llvm(seed)
    assert failure is not None and failure.stage.startswith("reductions") and failure.stage.endswith("llvm")
    program = program_of(seed)
    small = smallest(program, failure, lambda p: check_llvm(seed, p)[0])
    assert len(small.source) < len(program.source)
    prepared = [work for s in range(7, 60, 10) if (work := campaign.Prepared(s, plan_of(s), program_of(s)))]
    for work in prepared:
        campaign._prepare(work)
        campaign._kernel(work)
    assert check_c(prepared)


def bad_work(seeds: Sequence[int], begin: Callable[[int], None], say: Callable[[Any], None]) -> None:
    """Seed 2 dies, seed 5 never answers."""
    for seed in seeds:
        begin(seed)
        if seed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        while seed == 5:
            time.sleep(0.01)
        say(seed)


def test_a_crash_and_a_hang_cost_one_seed_each() -> None:
    said = list(serve(iter([range(0, 4), range(4, 8)]), bad_work, jobs=2, limit=0.3))
    lost = {one.seed: one.why for one in said if isinstance(one, Lost)}
    assert lost[2] == "exit code -9" and "no answer" in lost[5] and len(lost) == 2
    assert sorted(one for one in said if isinstance(one, int)) == [0, 1, 3, 4, 6, 7]


def test_the_page_is_read_back_and_says_what_is_left(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    blocks = [Block(s, s + 999, (100,), int(s == 1000), 40, "abc+", "2026-01-02") for s in (1000, 0, 5000)]
    PAGE.write(page, blocks, ["- seed 1003: plain program llvm: array 0"])
    read, said = PAGE.read(page)
    assert [(b.first, b.last, *b.counts, b.failures, b.seconds) for b in read] == [
        (0, 1999, 200, 1, 80), (5000, 5999, 100, 0, 40)
    ]  # fmt: skip
    assert said == ["- seed 1003: plain program llvm: array 0"]
    assert missing(read, range(0, 6000), 1000) == [range(s, s + 1000) for s in (2000, 3000, 4000)]
    assert "| all | 3000 | 300 | 1 | 120 | | |" in page.read_text()


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    command = ["12", "40", "--page", str(page), "--jobs", "2"]
    assert fuzz.campaign(command) == 0
    assert "| 40 to 51 | 12 | 1 | 0 |" in page.read_text()
    capfd.readouterr()
    assert fuzz.campaign(command) == 0
    assert capfd.readouterr().out == ""
