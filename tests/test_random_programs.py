"""Random programs: plain Python = interpreter = LLVM = C, in program order, under random legal
schedules and under the automatic one. `python tests/fuzz.py 2000` is the long version."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from differential import check, private_cache, shrink
from parts import in_part
from program_tree import Line
from random_programs import generate
from random_schedules import random_schedule

from polyc.scheduler.schedule import Schedule

CHUNK = 5


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYC_CACHE", "")  # restored afterwards
    private_cache()


def run(seeds: range) -> None:
    for seed in seeds:
        program = generate(seed)
        failure = check(program)
        assert failure is None, f"seed {seed}: {failure}\n{shrink(program, failure).source}"


@pytest.mark.parametrize("first", in_part(range(0, 60, CHUNK), lambda first: first < 25))
def test_back_ends_agree_on_random_programs(first: int) -> None:
    run(range(first, first + CHUNK))


# Programs that once failed: an affine condition on a data-dependent iterator; a remainder for
# which isl derives a wrong stride; arms of two types; bounds read outside their array; a block loop
# taken for the loop that data-dependent bounds need; a scalar call under a vector condition; copies
# to a buffer beside statements that do not use it; a local array of negative extent;
# rfactor around a data-dependent loop; buffers whose size such a loop decides (10_031, 11_880); unrolled
# copies that never run (10_067); an internal error of gcc (10_306); lane accumulators that start at +0.0
# (10_670) or are combined into an element that does not exist (11_249); strides that isl gets wrong
# (6_000_060, 7_000_416, 7_000_962); an arm that is never taken (112); a loop skewed by a data-dependent one inside
# it (9_000_154); a shared buffer that threads write (9_000_634).
FAILED_ONCE = (
    100_420, 100_472, 200_535, 400_033, 900_340, 900_375, 900_566, 2_000_132, 4_000_069,
    6_000_060, 7_000_416, 7_000_962, 112, 10_031, 10_067, 10_306, 10_670, 11_249, 11_880, 9_000_154, 9_000_634,
)  # fmt: skip


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_what_failed_once(seed: int) -> None:
    run(range(seed, seed + 1))


@pytest.mark.long
def test_what_failed_once_and_takes_long() -> None:
    run(range(12_001_299, 12_001_300))


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 12_000, 50))
def test_back_ends_agree_on_many_random_programs(first: int) -> None:
    run(range(first, first + 50))


def test_a_seed_always_gives_the_same_program_and_data() -> None:
    for seed in range(20):
        a, b = generate(seed), generate(seed)
        assert a.source == b.source
        assert all(np.array_equal(x, y) for x, y in zip(a.arguments(), b.arguments(), strict=True))


def test_the_generator_covers_the_language() -> None:
    text = "\n".join(generate(seed).source for seed in range(400))
    for piece in ("idx[", "range(ptr[", "range(cnt[", " if ", "else:", ", -1)", ", 2)", "min(", "grid(", "empty(",
                  "full(", "//", "%", "inout(f16", "u8", "mask[", "alpha", "exp(", "fma(", "where("):  # fmt: skip
        assert piece in text, piece


def test_random_schedules_change_something() -> None:
    steps = Counter(
        step.name
        for seed in range(25)
        for step in random_schedule(Schedule.start(generate(seed).operator().scop()), seed, tries=8).trace
    )
    assert sum(steps.values()) > 40 and len(steps) >= 10, steps


def test_a_difference_is_found_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that loses a store is noticed, and the reproduction is small."""
    import back_ends

    honest = back_ends.interpret

    def lossy(scop, tree, args, shuffle=None, fn=None):
        got = honest(scop, tree, args, shuffle, fn)
        got[0].flat[0] = got[0].flat[0] + got[0].dtype.type(1)
        return got

    monkeypatch.setattr(back_ends, "interpret", lossy)
    program = generate(3)
    failure = check(program, ("interp",))
    assert failure is not None and failure.stage == "program interp"
    small = shrink(program, failure)
    assert _size(small.body) < _size(program.body)


def _size(lines: list[Line]) -> int:
    return sum(1 + _size(line.body) for line in lines)
