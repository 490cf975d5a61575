"""`benchmarks.scaling`: a compilation on more cores, from the tasks of its trace."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scaling import Tasks, read, simulated


def event(name: str, process: int, start: float, seconds: float, **about: Any) -> dict[str, Any]:
    """A span of a trace that took as long as a processor worked on it."""
    times = {"ts": 1e6 * start, "dur": 1e6 * seconds}
    return {"ph": "X", "name": name, "cat": name, "pid": process, **times, "args": {"processor": seconds, **about}}


TRACE = {
    "traceEvents": [
        event("import", 1, 0, 2), event("passes", 1, 2, 1), event("views", 1, 2, 0.5), event("kernels", 1, 3, 0),
        event("start of compilers", 2, 2, 0.5), event("program", 1, 9, 1), event("save", 1, 10, 7),
        event("kernel", 3, 4, 1.0, size=10, symbol="a"), event("kernel", 4, 4, 2.0, size=30, symbol="b"),
        event("kernel", 3, 5, 1.0, size=20, symbol="c"), event("lower", 3, 5, 1.0),
    ]
}  # fmt: skip


def test_tasks_of_a_trace() -> None:
    tasks = read(TRACE)
    assert tasks == Tasks(before=3, after=1, start=0.5, started_at=2, kernels=(2.0, 1.0, 1.0))
    with pytest.raises(SystemExit):
        read({"traceEvents": []})


def test_one_core_takes_the_sum_and_many_the_longest_way() -> None:
    tasks = read(TRACE)
    assert simulated(tasks, 1) == tasks.total == 8.5
    assert simulated(tasks, 2) == simulated(tasks, 3) == tasks.longest == 6
    one_kernel_each = Tasks(1.0, 0.0, 0.0, None, (1.0,) * 8)
    assert [simulated(one_kernel_each, n) for n in (1, 2, 4, 8, 32)] == [9, 5, 3, 2, 2]


def test_kernels_wait_for_compilers_that_start_late() -> None:
    assert simulated(Tasks(1.0, 0.0, 3.0, 0.5, (1.0,)), 2) == 4.5
