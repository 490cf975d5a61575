"""Graphs of tasks on the pool: every task once, after all that it waits for, with loops inside that others join."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest

from polyc.emit import targets
from polyc.emit.llvm import jit
from polyc.emit.run_time import threadpool
from polyc.emit.run_time.task_runner import TASKS_AT, graph_words

# A task takes the time at its start and its end from one clock, and between them adds 1 to each of its 64 cells in a
# parallel loop. context: [0] the clock, then for each task its start, its end, and 64 cells.
TASK = """
define void @cells(i64 %lo, i64 %hi, ptr %row) {
entry:
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %p = getelementptr i64, ptr %row, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
define void @task(i64 %number, ptr %context, ptr %handle) {
entry:
  %offset = mul i64 %number, 66
  %at = add i64 %offset, 1
  %row = getelementptr i64, ptr %context, i64 %at
  %start = atomicrmw add ptr %context, i64 1 seq_cst
  %earlier = load i64, ptr %row
  %sum = add i64 %earlier, %start
  store i64 %sum, ptr %row
  %loop = load ptr, ptr %handle
  call void %loop(ptr %handle, ptr @cells, ptr %row, i64 2, i64 66)
  %end = atomicrmw add ptr %context, i64 1 seq_cst
  %end.p = getelementptr i64, ptr %row, i64 1
  store i64 %end, ptr %end.p
  ret void
}
"""
TASK_OF = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@pytest.fixture(scope="module")
def code() -> jit.Library:
    return jit.Library([jit.build_object(TASK, targets.host())], ["task"])


def drawn(rng: np.random.Generator) -> list[tuple[int, ...]]:
    count, share = int(rng.integers(1, 40)), rng.random() * 0.4
    return [tuple(j for j in range(k) if rng.random() < share) for k in range(count)]


def run(code: jit.Library, pool: int, after: list[tuple[int, ...]]) -> np.ndarray:
    """A row for each task: start, end, and its cells."""
    words = np.array(graph_words(after), np.int32)
    memory = np.zeros(1 + 66 * len(after), np.int64)
    entry = ctypes.c_void_p.from_address(pool + TASKS_AT).value
    assert entry
    RUN(entry)(pool, code.address("task"), memory.ctypes.data, words.ctypes.data)
    assert memory[0] == 2 * len(after)
    return memory[1:].reshape(-1, 66)


def check(rows: np.ndarray, after: list[tuple[int, ...]]) -> None:
    assert (rows[:, 2:] == 1).all()
    assert sorted(rows[:, :2].reshape(-1)) == list(range(2 * len(after)))
    for k, earlier in enumerate(after):
        assert all(rows[e, 1] < rows[k, 0] for e in earlier)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_each_once_and_after_what_it_waits_for(code: jit.Library, threads: int) -> None:
    pool, rng = threadpool.handle(threads), np.random.default_rng()
    for _ in range(60):
        after = drawn(rng)
        check(run(code, pool, after), after)


def test_independent_tasks_run_at_the_same_time() -> None:
    pool, meeting = threadpool.handle(2), threading.Barrier(2, timeout=60)
    body = TASK_OF(lambda number, context, handle: meeting.wait() and None)
    words = np.array(graph_words([(), ()]), np.int32)
    entry = ctypes.c_void_p.from_address(pool + TASKS_AT).value
    assert entry
    RUN(entry)(pool, ctypes.cast(body, ctypes.c_void_p).value, None, words.ctypes.data)
    assert not meeting.broken


def test_callers_at_once_and_a_chain(code: jit.Library) -> None:
    """The pool serves one caller; the others run their graphs alone."""
    pool = threadpool.handle(2)
    wrong: list[AssertionError] = []

    def many(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            after = drawn(rng) if seed else [(), *((k,) for k in range(20))]
            try:
                check(run(code, pool, after), after)
            except AssertionError as error:
                wrong.append(error)

    workers = [threading.Thread(target=many, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_runs_them_alone(code: jit.Library) -> None:
    pool, after = threadpool.handle(2), [(), (0,), (0,), (1, 2)]
    pid = os.fork()
    if pid == 0:
        rows = run(code, pool, after)
        os._exit(0 if (np.diff(rows[:, :2].reshape(-1)) == 1).all() and (rows[:, 2:] == 1).all() else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
