"""A thread pool written in LLVM IR: no C compiler, no Python between a kernel and its threads.

A handle (the kernels' `runtime` argument) points to a block of memory: the address of

    void parallel_for(handle, void (*fn)(int64_t from, int64_t to, void *context), context, lo, hi)

the number of threads, and the address of `polyc_run_tasks` (`polyc.emit.run_time.task_runner`).
`parallel_for` runs `fn` over static chunks of [lo, hi) on all threads, the calling one included.
Chunks depend only on the range and the number of threads. Each thread has a share of consecutive chunks, the same in
every loop of as many iterations, so that it finds in its cache what it left there; who is through with his own
takes what is left of the others'. Calls from inside a parallel loop, or while another thread uses the pool,
run serially on the caller. Idle workers spin for some microseconds, then sleep.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import threading
from typing import Any

from polyc.emit import cache, targets
from polyc.emit.llvm import jit
from polyc.emit.run_time import task_runner
from polyc.poly.errors import BuildError

CHUNKS_PER_THREAD = 16
SPINS = 4000  # some 50 microseconds before a worker sleeps
MAX_THREADS = 512
LEVEL = 0  # of LLVM: the text is written as it should run; level 2 saves 10 ns a loop and takes 18 times as long

# Offsets in the block, in bytes. Words written by different threads have their own cache lines.
# STATE is epoch << 16 | open << 15 | number of workers inside the job.
_LAYOUT = {
    "ENTRY": 0, "THREADS": 8, "TASKS": task_runner.TASKS_AT, "SHARES": 24, "STATE": 64, "FN": 128, "CONTEXT": 136,
    "LO": 144, "HI": 152, "CHUNKS": 160, "NEXT": 192, "BUSY": 256,
    "SLEEPERS": 320, "STOP": 328, "MUTEX": 384, "COND": 512, "LINES": 640,
    # A line of each thread: its next chunk, the end of its share, its id, the pool.
    "LINE": 64, "SHARE_NEXT": 0, "SHARE_END": 8, "ID": 16, "POOL": 24,
}  # fmt: skip

_TEXT = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_mutex_destroy(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_cond_destroy(ptr)
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
PAUSE_DECLARATION

define internal void @chunk(ptr %pool, i64 %k) {
entry:
  %fn.p = getelementptr i8, ptr %pool, i64 $FN
  %fn = load ptr, ptr %fn.p
  %context.p = getelementptr i8, ptr %pool, i64 $CONTEXT
  %context = load ptr, ptr %context.p
  %lo.p = getelementptr i8, ptr %pool, i64 $LO
  %lo = load i64, ptr %lo.p
  %hi.p = getelementptr i8, ptr %pool, i64 $HI
  %hi = load i64, ptr %hi.p
  %chunks.p = getelementptr i8, ptr %pool, i64 $CHUNKS
  %chunks = load i64, ptr %chunks.p
  %size = sub i64 %hi, %lo
  %each = udiv i64 %size, %chunks
  %rest = urem i64 %size, %chunks
  %from.a = mul i64 %k, %each
  %from.b = call i64 @llvm.umin.i64(i64 %k, i64 %rest)
  %from.c = add i64 %from.a, %from.b
  %from = add i64 %lo, %from.c
  %longer = icmp ult i64 %k, %rest
  %extra = zext i1 %longer to i64
  %length = add i64 %each, %extra
  %to = add i64 %from, %length
  call void %fn(i64 %from, i64 %to, ptr %context)
  ret void
}

define internal void @chunks(ptr %pool) {
entry:
  %chunks.p = getelementptr i8, ptr %pool, i64 $CHUNKS
  %chunks = load i64, ptr %chunks.p
  %next.p = getelementptr i8, ptr %pool, i64 $NEXT
  br label %take
take:
  %k = atomicrmw add ptr %next.p, i64 1 monotonic
  %have = icmp ult i64 %k, %chunks
  br i1 %have, label %run, label %done
run:
  call void @chunk(ptr %pool, i64 %k)
  br label %take
done:
  ret void
}

define internal void @shares(ptr %pool, ptr %mine) {
entry:
  %shares.p = getelementptr i8, ptr %pool, i64 $SHARES
  %lines = load ptr, ptr %shares.p
  %threads.p = getelementptr i8, ptr %pool, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %bytes = mul i64 %threads, $LINE
  %end = getelementptr i8, ptr %lines, i64 %bytes
  br label %share
share:
  %line = phi ptr [ %mine, %entry ], [ %other, %on ]
  %next.p = getelementptr i8, ptr %line, i64 $SHARE_NEXT
  %end.p = getelementptr i8, ptr %line, i64 $SHARE_END
  %last = load i64, ptr %end.p
  br label %take
take:
  %k = atomicrmw add ptr %next.p, i64 1 monotonic
  %have = icmp slt i64 %k, %last
  br i1 %have, label %run, label %on
run:
  call void @chunk(ptr %pool, i64 %k)
  br label %take
on:
  %after = getelementptr i8, ptr %line, i64 $LINE
  %wrap = icmp eq ptr %after, %end
  %other = select i1 %wrap, ptr %lines, ptr %after
  %round = icmp eq ptr %other, %mine
  br i1 %round, label %done, label %share
done:
  ret void
}
declare i64 @llvm.umin.i64(i64, i64)

define internal ptr @worker(ptr %line) {
entry:
  %pool.p = getelementptr i8, ptr %line, i64 $POOL
  %pool = load ptr, ptr %pool.p
  %state.p = getelementptr i8, ptr %pool, i64 $STATE
  %stop.p = getelementptr i8, ptr %pool, i64 $STOP
  %sleepers.p = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %mutex = getelementptr i8, ptr %pool, i64 $MUTEX
  %cond = getelementptr i8, ptr %pool, i64 $COND
  br label %wait
wait:
  %seen = phi i64 [ 0, %entry ], [ %seen, %joining ], [ %epoch.j, %ran ], [ %epoch.j, %closed ]
  br label %spin
spin:
  %n = phi i64 [ 0, %wait ], [ %n.next, %spinning ]
  %s.spin = load atomic i64, ptr %state.p acquire, align 8
  %e.spin = lshr i64 %s.spin, 16
  %new.spin = icmp ne i64 %e.spin, %seen
  br i1 %new.spin, label %awake, label %idle
idle:
  %stop.spin = load atomic i32, ptr %stop.p acquire, align 4
  %stopped.spin = icmp ne i32 %stop.spin, 0
  br i1 %stopped.spin, label %leave, label %spinning
spinning:
  PAUSE
  %n.next = add i64 %n, 1
  %more = icmp ult i64 %n.next, $SPINS
  br i1 %more, label %spin, label %sleep
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %in = atomicrmw add ptr %sleepers.p, i32 1 seq_cst
  br label %check
check:
  %s.check = load atomic i64, ptr %state.p seq_cst, align 8
  %e.check = lshr i64 %s.check, 16
  %new.check = icmp ne i64 %e.check, %seen
  %stop.check = load atomic i32, ptr %stop.p seq_cst, align 4
  %stopped.check = icmp ne i32 %stop.check, 0
  %up = or i1 %new.check, %stopped.check
  br i1 %up, label %rise, label %doze
doze:
  %w = call i32 @pthread_cond_wait(ptr %cond, ptr %mutex)
  br label %check
rise:
  %out = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %awake
awake:
  %stop.awake = load atomic i32, ptr %stop.p acquire, align 4
  %stopped.awake = icmp ne i32 %stop.awake, 0
  br i1 %stopped.awake, label %leave, label %join
join:
  %s.j = load atomic i64, ptr %state.p acquire, align 8
  %epoch.j = lshr i64 %s.j, 16
  %open.bit = and i64 %s.j, 32768
  %open = icmp ne i64 %open.bit, 0
  br i1 %open, label %enter, label %closed
closed:
  br label %wait
enter:
  %s.inside = add i64 %s.j, 1
  %swap = cmpxchg ptr %state.p, i64 %s.j, i64 %s.inside acq_rel acquire
  %ok = extractvalue { i64, i1 } %swap, 1
  br i1 %ok, label %ran, label %joining
joining:
  br label %wait
ran:
  call void @shares(ptr %pool, ptr %line)
  %left = atomicrmw sub ptr %state.p, i64 1 release
  br label %wait
leave:
  ret ptr null
}

define void @polyc_parallel_for(ptr %pool, ptr %fn, ptr %context, i64 %lo, i64 %hi) {
entry:
  %size = sub i64 %hi, %lo
  %some = icmp sgt i64 %size, 0
  br i1 %some, label %choose, label %done
choose:
  %threads.p = getelementptr i8, ptr %pool, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %alone = icmp ule i64 %threads, 1
  %single = icmp eq i64 %size, 1
  %serially = or i1 %alone, %single
  br i1 %serially, label %serial, label %lock
lock:
  %busy.p = getelementptr i8, ptr %pool, i64 $BUSY
  %swap = cmpxchg ptr %busy.p, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %publish, label %serial
serial:
  call void %fn(i64 %lo, i64 %hi, ptr %context)
  br label %done
publish:
  %fn.p = getelementptr i8, ptr %pool, i64 $FN
  store ptr %fn, ptr %fn.p
  %context.p = getelementptr i8, ptr %pool, i64 $CONTEXT
  store ptr %context, ptr %context.p
  %lo.p = getelementptr i8, ptr %pool, i64 $LO
  store i64 %lo, ptr %lo.p
  %hi.p = getelementptr i8, ptr %pool, i64 $HI
  store i64 %hi, ptr %hi.p
  %want = mul i64 %threads, $CHUNKS_PER_THREAD
  %chunks = call i64 @llvm.umin.i64(i64 %want, i64 %size)
  %chunks.p = getelementptr i8, ptr %pool, i64 $CHUNKS
  store i64 %chunks, ptr %chunks.p
  %next.p = getelementptr i8, ptr %pool, i64 $NEXT
  store atomic i64 0, ptr %next.p monotonic, align 8
  %shares.p = getelementptr i8, ptr %pool, i64 $SHARES
  %lines = load ptr, ptr %shares.p
  %common = icmp eq ptr %lines, null
  br i1 %common, label %open, label %divide
divide:
  %line.k = phi i64 [ 0, %publish ], [ %line.next, %divide ]
  %begin = phi i64 [ 0, %publish ], [ %limit, %divide ]
  %line.next = add i64 %line.k, 1
  %share.a = mul i64 %line.next, %chunks
  %limit = udiv i64 %share.a, %threads
  %line.at = mul i64 %line.k, $LINE
  %line = getelementptr i8, ptr %lines, i64 %line.at
  %share.next.p = getelementptr i8, ptr %line, i64 $SHARE_NEXT
  store atomic i64 %begin, ptr %share.next.p monotonic, align 8
  %share.end.p = getelementptr i8, ptr %line, i64 $SHARE_END
  store i64 %limit, ptr %share.end.p
  %divided = icmp eq i64 %line.next, %threads
  br i1 %divided, label %open, label %divide
open:
  %state.p = getelementptr i8, ptr %pool, i64 $STATE
  %old = load atomic i64, ptr %state.p monotonic, align 8
  %epoch = lshr i64 %old, 16
  %epoch.next = add i64 %epoch, 1
  %shifted = shl i64 %epoch.next, 16
  %opened = or i64 %shifted, 32768
  store atomic i64 %opened, ptr %state.p seq_cst, align 8
  %sleepers.p = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  call void @wake(ptr %pool)
  br label %work
work:
  br i1 %common, label %work.chunks, label %work.shares
work.chunks:
  call void @chunks(ptr %pool)
  br label %close
work.shares:
  call void @shares(ptr %pool, ptr %lines)
  br label %close
close:
  %closing = atomicrmw and ptr %state.p, i64 -32769 acq_rel
  br label %finish
finish:
  %n = phi i64 [ 0, %close ], [ %n.next, %again ]
  %s = load atomic i64, ptr %state.p acquire, align 8
  %inside = and i64 %s, 32767
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %release, label %pause
pause:
  PAUSE
  %n.next = add i64 %n, 1
  %patient = icmp ult i64 %n.next, $SPINS
  br i1 %patient, label %again, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %again
again:
  br label %finish
release:
  store atomic i32 0, ptr %busy.p release, align 4
  br label %done
done:
  ret void
}

define internal void @wake(ptr %pool) {
entry:
  %mutex = getelementptr i8, ptr %pool, i64 $MUTEX
  %cond = getelementptr i8, ptr %pool, i64 $COND
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %cond)
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define ptr @polyc_pool_create(i64 %threads) {
entry:
  %bytes.lines = mul i64 %threads, $LINE
  %bytes = add i64 %bytes.lines, $LINES
  %pool = call ptr @aligned_alloc(i64 64, i64 %bytes)
  %null = icmp eq ptr %pool, null
  br i1 %null, label %fail, label %init
init:
  call void @llvm.memset.p0.i64(ptr %pool, i8 0, i64 %bytes, i1 false)
  store ptr @polyc_parallel_for, ptr %pool
  %tasks.p = getelementptr i8, ptr %pool, i64 $TASKS
  store ptr @polyc_run_tasks, ptr %tasks.p
  %lines = getelementptr i8, ptr %pool, i64 $LINES
  %shares.p = getelementptr i8, ptr %pool, i64 $SHARES
  store ptr %lines, ptr %shares.p
  %threads.p = getelementptr i8, ptr %pool, i64 $THREADS
  %mutex = getelementptr i8, ptr %pool, i64 $MUTEX
  %cond = getelementptr i8, ptr %pool, i64 $COND
  %m = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr %cond, ptr null)
  br label %loop
loop:
  %k = phi i64 [ 1, %init ], [ %k.next, %started ]
  %more = icmp ult i64 %k, %threads
  br i1 %more, label %start, label %finish
start:
  %offset = mul i64 %k, $LINE
  %line = getelementptr i8, ptr %lines, i64 %offset
  %line.pool.p = getelementptr i8, ptr %line, i64 $POOL
  store ptr %pool, ptr %line.pool.p
  %id = getelementptr i8, ptr %line, i64 $ID
  %bad = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %line)
  %failed = icmp ne i32 %bad, 0
  br i1 %failed, label %finish, label %started
started:
  %k.next = add i64 %k, 1
  br label %loop
finish:
  store i64 %k, ptr %threads.p
  ret ptr %pool
fail:
  ret ptr null
}

define i64 @polyc_pool_threads(ptr %pool) {
  %threads.p = getelementptr i8, ptr %pool, i64 $THREADS
  %threads = load i64, ptr %threads.p
  ret i64 %threads
}

define void @polyc_pool_forked(ptr %pool) {
  %threads.p = getelementptr i8, ptr %pool, i64 $THREADS
  store i64 1, ptr %threads.p
  ret void
}

define void @polyc_pool_destroy(ptr %pool) {
entry:
  %threads.p = getelementptr i8, ptr %pool, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %stop.p = getelementptr i8, ptr %pool, i64 $STOP
  store atomic i32 1, ptr %stop.p seq_cst, align 4
  call void @wake(ptr %pool)
  br label %loop
loop:
  %k = phi i64 [ 1, %entry ], [ %k.next, %join ]
  %more = icmp ult i64 %k, %threads
  br i1 %more, label %join, label %finish
join:
  %offset = mul i64 %k, $LINE
  %place = add i64 %offset, $LINES
  %line = getelementptr i8, ptr %pool, i64 %place
  %id.p = getelementptr i8, ptr %line, i64 $ID
  %id = load i64, ptr %id.p
  %r = call i32 @pthread_join(i64 %id, ptr null)
  %k.next = add i64 %k, 1
  br label %loop
finish:
  %mutex = getelementptr i8, ptr %pool, i64 $MUTEX
  %cond = getelementptr i8, ptr %pool, i64 $COND
  %m = call i32 @pthread_mutex_destroy(ptr %mutex)
  %c = call i32 @pthread_cond_destroy(ptr %cond)
  call void @free(ptr %pool)
  ret void
}
"""

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}


def source(triple: str) -> str:
    """The pool's LLVM IR for a machine."""
    declaration, pause = _PAUSE.get(triple.split("-")[0].replace("arm64", "aarch64"), ("", ""))
    text = (_TEXT + task_runner.TEXT).replace("PAUSE_DECLARATION", declaration).replace("PAUSE", pause)
    numbers = _LAYOUT | task_runner.LAYOUT | {"CHUNKS_PER_THREAD": CHUNKS_PER_THREAD, "SPINS": SPINS}
    text = re.sub(r"\$([A-Z_]+)", lambda m: str(numbers[m[1]]), text)
    return f'source_filename = "polyc_threadpool"\ntarget triple = "{triple}"\n{text}'


_lock = threading.Lock()
_library: jit.Library | None = None
_pools: dict[int, int] = {}


def _function(name: str, result: Any, *args: Any) -> Any:
    """A C function of the compiled pool (compiled once per process, cached on disk)."""
    global _library
    if _library is None:
        target = targets.host()
        text = source(target.triple)
        key = cache.make_key("threadpool", text, target.cpu, target.features, str(LEVEL))
        names = ("create", "threads", "forked", "destroy")
        symbols = ["polyc_parallel_for", *(f"polyc_pool_{n}" for n in names)]
        image, _ = cache.cached(key, lambda: jit.build_object(text, target, LEVEL))
        _library = jit.Library([image], symbols)
    return ctypes.CFUNCTYPE(result, *args)(_library.address(name))


def handle(threads: int) -> int:
    """The pool of this process with that many threads: the `runtime` argument (0 = serial).

    Pools are made on first use and live until the process ends.

    Raises:
        BuildError: no memory for a pool.
    """
    if threads <= 1:
        return 0
    found = _pools.get(threads)
    if found is not None:
        return found
    with _lock:
        if threads not in _pools:
            made = _function("polyc_pool_create", ctypes.c_void_p, ctypes.c_int64)(min(threads, MAX_THREADS))
            if not made:
                raise BuildError(f"no memory for a pool of {threads} threads")
            _pools[threads] = made
        return _pools[threads]


def running_threads(pool: int) -> int:
    """How many threads a pool really has (fewer than asked for when the system refused)."""
    return int(_function("polyc_pool_threads", ctypes.c_int64, ctypes.c_void_p)(pool))


def _destroy_all() -> None:
    with _lock:
        while _pools:
            _, pool = _pools.popitem()
            _function("polyc_pool_destroy", None, ctypes.c_void_p)(pool)


def _after_fork() -> None:
    """In a forked child the workers are gone: old handles run serially, new ones are made anew."""
    global _lock
    _lock = threading.Lock()
    for pool in _pools.values():
        _function("polyc_pool_forked", None, ctypes.c_void_p)(pool)
    _pools.clear()


atexit.register(_destroy_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
