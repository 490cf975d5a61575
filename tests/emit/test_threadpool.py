"""The LLVM thread pool: every index once, nesting, concurrency, fork."""

import ctypes
import os
import threading

import numpy as np
import pytest

from polyc.emit import targets
from polyc.emit.llvm import jit
from polyc.emit.run_time import threadpool

BODY = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

# count[i] += 1 for i in lo..hi, in machine code; `nested` calls the pool again from inside.
COUNT = """
define void @count(i64 %lo, i64 %hi, ptr %data) {
entry:
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %p = getelementptr i32, ptr %data, i64 %i
  %old = load i32, ptr %p
  %new = add i32 %old, 1
  store i32 %new, ptr %p
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
define void @nested(i64 %lo, i64 %hi, ptr %context) {
entry:
  %pool = load ptr, ptr %context
  %data.p = getelementptr ptr, ptr %context, i64 1
  %data = load ptr, ptr %data.p
  %run = load ptr, ptr %pool
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %from = mul i64 %i, 10
  %to = add i64 %from, 10
  call void %run(ptr %pool, ptr @count, ptr %data, i64 %from, i64 %to)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def code() -> jit.Library:
    target = targets.host()
    return jit.Library([jit.build_object(COUNT, target)], ["count", "nested"])


def run(pool: int, fn: int, context: int, lo: int, hi: int) -> None:
    entry = ctypes.c_void_p.from_address(pool).value
    assert entry
    ENTRY(entry)(pool, fn, context, lo, hi)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("span", [(0, 0), (5, 3), (0, 1), (3, 5), (7, 100), (0, 1001)])
def test_every_index_runs_once(code: jit.Library, threads: int, span: tuple[int, int]) -> None:
    pool = threadpool.handle(threads)
    assert threadpool.running_threads(pool) == threads
    data = np.full(1100, 41, np.int32)
    for _ in range(20):
        run(pool, code.address("count"), data.ctypes.data, *span)
    expected = np.full(1100, 41, np.int32)
    expected[span[0] : max(span)] += 20 if span[0] < span[1] else 0
    assert (data == expected).all()


def test_no_pool_for_one_thread() -> None:
    assert threadpool.handle(1) == 0 and threadpool.handle(0) == 0


def test_chunks_are_static(code: jit.Library) -> None:
    pool, seen = threadpool.handle(2), []
    body = BODY(lambda lo, hi, _: seen.append((lo, hi)))
    address = ctypes.cast(body, ctypes.c_void_p).value
    assert address
    run(pool, address, 0, 3, 30)
    expected = sorted(seen)
    assert expected[0][0] == 3 and expected[-1][1] == 30 and len(expected) == min(27, 2 * threadpool.CHUNKS_PER_THREAD)
    assert all(a[1] == b[0] for a, b in zip(expected, expected[1:]))
    seen.clear()
    run(pool, address, 0, 3, 30)
    assert sorted(seen) == expected


def test_each_thread_has_the_same_share_in_every_loop() -> None:
    """What a thread finds in its cache: the caller begins with the first chunk, the worker with the middle one."""
    pool = threadpool.handle(2)
    for _ in range(5):
        first: dict[int, int] = {}
        both = threading.Event()

        def work(lo: int, hi: int, _: object, first: dict[int, int] = first, both: threading.Event = both) -> None:
            first.setdefault(threading.get_ident(), lo)
            if len(first) == 2:
                both.set()
            assert both.wait(60)  # nobody goes on before the other has begun

        address = ctypes.cast(body := BODY(work), ctypes.c_void_p).value
        assert address and body
        run(pool, address, 0, 0, 640)
        assert first[threading.get_ident()] == 0 and sorted(first.values()) == [0, 320]


def test_nested_parallel_loops_run_serially(code: jit.Library) -> None:
    pool = threadpool.handle(2)
    data = np.full(1000, 7, np.int32)
    context = (ctypes.c_void_p * 2)(pool, data.ctypes.data)
    for _ in range(10):
        run(pool, code.address("nested"), ctypes.addressof(context), 0, 100)
    assert (data == 17).all()


def test_concurrent_callers(code: jit.Library) -> None:
    pool = threadpool.handle(2)
    arrays = [np.full(997, k, np.int32) for k in range(4)]

    def many(data: np.ndarray) -> None:
        for _ in range(50):
            run(pool, code.address("count"), data.ctypes.data, 0, len(data))

    workers = [threading.Thread(target=many, args=(a,)) for a in arrays]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert all((a == k + 50).all() for k, a in enumerate(arrays))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_can_use_old_and_new_pools(code: jit.Library) -> None:
    pool = threadpool.handle(2)
    pid = os.fork()
    if pid == 0:
        data = np.zeros(100, np.int32)
        run(pool, code.address("count"), data.ctypes.data, 0, 100)
        fresh = threadpool.handle(2)
        run(fresh, code.address("count"), data.ctypes.data, 0, 100)
        os._exit(0 if (data == 2).all() and fresh != pool else 3)
    assert os.waitpid(pid, 0)[1] == 0
    data = np.zeros(100, np.int32)
    run(pool, code.address("count"), data.ctypes.data, 0, 100)
    assert (data == 1).all()
