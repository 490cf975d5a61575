"""Running a graph of tasks on the pool's threads, in LLVM IR; compiled together with `polyc.emit.run_time.threadpool`.

    void polyc_run_tasks(handle, void (*task)(int64_t number, void *context, handle), context, const int32_t *graph)

runs tasks 0 .. n-1. `graph` is n; for each task the number of tasks that it waits for; for each task where its
followers begin in what comes next, and the end of all; the followers (`graph_words`). Edges must go from lower to
higher numbers.

Every thread takes the first task that nothing holds up any more. The handle that a task gets is one of the
thread's own, of the same form as the pool's, so that a task's parallel loop is offered there: a thread that finds no
task joins such a loop until there is one. So neither a lone long task nor many short ones leave threads idle, and
there are never more threads than the pool has. Nothing waits while it holds something that others need: the
first unfinished task always runs.
"""

from __future__ import annotations

from collections.abc import Sequence

TASKS_AT = 16  # where a handle has the address of `polyc_run_tasks`

# Offsets in the block of a run (on the stack of the caller), in bytes.
LAYOUT = {
    "R_TASK": 0, "R_CONTEXT": 8, "R_GRAPH": 16, "R_THREADS": 24, "R_DONE": 64, "R_FIRST": 128, "R_SLOTS": 192,
    "SLOT_BYTES": 384, "IDLE_MICROSECONDS": 20,
}  # fmt: skip

TEXT = """
define internal i1 @help(ptr %run) {
entry:
  %threads.p = getelementptr i8, ptr %run, i64 $R_THREADS
  %threads = load i64, ptr %threads.p
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %more = icmp ult i64 %k, %threads
  br i1 %more, label %slot, label %none
slot:
  %offset = mul i64 %k, $SLOT_BYTES
  %place = add i64 %offset, $R_SLOTS
  %slot.p = getelementptr i8, ptr %run, i64 %place
  %state.p = getelementptr i8, ptr %slot.p, i64 $STATE
  %s = load atomic i64, ptr %state.p acquire, align 8
  %open.bit = and i64 %s, 32768
  %open = icmp ne i64 %open.bit, 0
  br i1 %open, label %enter, label %next
enter:
  %inside = add i64 %s, 1
  %swap = cmpxchg ptr %state.p, i64 %s, i64 %inside acq_rel acquire
  %ok = extractvalue { i64, i1 } %swap, 1
  br i1 %ok, label %join, label %next
join:
  call void @chunks(ptr %slot.p)
  %left = atomicrmw sub ptr %state.p, i64 1 release
  ret i1 true
next:
  %k.next = add i64 %k, 1
  br label %look
none:
  ret i1 false
}

define internal void @take_tasks(ptr %run, i64 %me) {
entry:
  %task.p = getelementptr i8, ptr %run, i64 $R_TASK
  %task = load ptr, ptr %task.p
  %context.p = getelementptr i8, ptr %run, i64 $R_CONTEXT
  %context = load ptr, ptr %context.p
  %graph.p = getelementptr i8, ptr %run, i64 $R_GRAPH
  %graph = load ptr, ptr %graph.p
  %threads.p = getelementptr i8, ptr %run, i64 $R_THREADS
  %threads = load i64, ptr %threads.p
  %done.p = getelementptr i8, ptr %run, i64 $R_DONE
  %first.p = getelementptr i8, ptr %run, i64 $R_FIRST
  %n.word = load i32, ptr %graph
  %n = zext i32 %n.word to i64
  %mine.offset = mul i64 %me, $SLOT_BYTES
  %mine.place = add i64 %mine.offset, $R_SLOTS
  %mine = getelementptr i8, ptr %run, i64 %mine.place
  %slots = mul i64 %threads, $SLOT_BYTES
  %waits.place = add i64 %slots, $R_SLOTS
  %waits = getelementptr i8, ptr %run, i64 %waits.place
  %begins.at = add i64 %n, 1
  %begins = getelementptr i32, ptr %graph, i64 %begins.at
  %twice = mul i64 %n, 2
  %followers.at = add i64 %twice, 2
  %followers = getelementptr i32, ptr %graph, i64 %followers.at
  br label %again
again:
  %idle = phi i64 [ 0, %entry ], [ 0, %finished ], [ 0, %helping ], [ %idle.next, %patience ]
  %done = load atomic i64, ptr %done.p acquire, align 8
  %over = icmp uge i64 %done, %n
  br i1 %over, label %leave, label %scan.start
scan.start:
  %first = load atomic i64, ptr %first.p monotonic, align 8
  br label %scan
scan:
  %k = phi i64 [ %first, %scan.start ], [ %k.next, %skip ]
  %in = icmp ult i64 %k, %n
  br i1 %in, label %ask, label %helping
ask:
  %wait.p = getelementptr i32, ptr %waits, i64 %k
  %wait = load atomic i32, ptr %wait.p acquire, align 4
  %ready = icmp eq i32 %wait, 0
  br i1 %ready, label %claim, label %skip
claim:
  %swap = cmpxchg ptr %wait.p, i32 0, i32 -1 acq_rel acquire
  %ok = extractvalue { i32, i1 } %swap, 1
  br i1 %ok, label %run.task, label %skip
skip:
  %k.next = add i64 %k, 1
  br label %scan
run.task:
  ; all before the first that is not taken are taken: a hint, which may lag behind
  %is.first = icmp eq i64 %k, %first
  br i1 %is.first, label %advance, label %go
advance:
  %after.k = add i64 %k, 1
  store atomic i64 %after.k, ptr %first.p monotonic, align 8
  br label %go
go:
  call void %task(i64 %k, ptr %context, ptr %mine)
  %begin.p = getelementptr i32, ptr %begins, i64 %k
  %begin.word = load i32, ptr %begin.p
  %end.p = getelementptr i32, ptr %begin.p, i64 1
  %end.word = load i32, ptr %end.p
  br label %release
release:
  %f = phi i32 [ %begin.word, %go ], [ %f.next, %released ]
  %left = icmp ult i32 %f, %end.word
  br i1 %left, label %released, label %finished
released:
  %f.long = zext i32 %f to i64
  %follower.p = getelementptr i32, ptr %followers, i64 %f.long
  %follower = load i32, ptr %follower.p
  %follower.long = zext i32 %follower to i64
  %its.p = getelementptr i32, ptr %waits, i64 %follower.long
  %was = atomicrmw sub ptr %its.p, i32 1 acq_rel
  %f.next = add i32 %f, 1
  br label %release
finished:
  %count = atomicrmw add ptr %done.p, i64 1 acq_rel
  br label %again
helping:
  %helped = call i1 @help(ptr %run)
  br i1 %helped, label %again, label %pause
pause:
  PAUSE
  %idle.next = add i64 %idle, 1
  %patient = icmp ult i64 %idle.next, $SPINS
  br i1 %patient, label %patience, label %yield
yield:
  ; asleep, so that this core takes over a thread that holds a task but waits for a busy core
  %y = call i32 @usleep(i32 $IDLE_MICROSECONDS)
  br label %patience
patience:
  br label %again
leave:
  ret void
}

define internal void @runners(i64 %from, i64 %to, ptr %run) {
entry:
  br label %loop
loop:
  %k = phi i64 [ %from, %entry ], [ %k.next, %work ]
  %more = icmp slt i64 %k, %to
  br i1 %more, label %work, label %done
work:
  call void @take_tasks(ptr %run, i64 %k)
  %k.next = add i64 %k, 1
  br label %loop
done:
  ret void
}

define void @polyc_run_tasks(ptr %pool, ptr %task, ptr %context, ptr %graph) {
entry:
  %threads.p = getelementptr i8, ptr %pool, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %n.word = load i32, ptr %graph
  %n = zext i32 %n.word to i64
  %alone = icmp ule i64 %threads, 1
  br i1 %alone, label %serial, label %prepare
serial:
  %k = phi i64 [ 0, %entry ], [ %k.next, %each ]
  %more = icmp ult i64 %k, %n
  br i1 %more, label %each, label %done
each:
  call void %task(i64 %k, ptr %context, ptr %pool)
  %k.next = add i64 %k, 1
  br label %serial
prepare:
  %slots = mul i64 %threads, $SLOT_BYTES
  %fixed = add i64 %slots, $R_SLOTS
  %waits.bytes = mul i64 %n, 4
  %bytes = add i64 %fixed, %waits.bytes
  %run = alloca i8, i64 %bytes, align 64
  call void @llvm.memset.p0.i64(ptr %run, i8 0, i64 %fixed, i1 false)
  %task.p = getelementptr i8, ptr %run, i64 $R_TASK
  store ptr %task, ptr %task.p
  %context.p = getelementptr i8, ptr %run, i64 $R_CONTEXT
  store ptr %context, ptr %context.p
  %graph.p = getelementptr i8, ptr %run, i64 $R_GRAPH
  store ptr %graph, ptr %graph.p
  %run.threads.p = getelementptr i8, ptr %run, i64 $R_THREADS
  store i64 %threads, ptr %run.threads.p
  %waits = getelementptr i8, ptr %run, i64 %fixed
  %counts = getelementptr i8, ptr %graph, i64 4
  call void @llvm.memcpy.p0.p0.i64(ptr %waits, ptr %counts, i64 %waits.bytes, i1 false)
  br label %slot
slot:
  %s = phi i64 [ 0, %prepare ], [ %s.next, %slot ]
  %offset = mul i64 %s, $SLOT_BYTES
  %place = add i64 %offset, $R_SLOTS
  %slot.p = getelementptr i8, ptr %run, i64 %place
  store ptr @polyc_parallel_for, ptr %slot.p
  %slot.threads.p = getelementptr i8, ptr %slot.p, i64 $THREADS
  store i64 %threads, ptr %slot.threads.p
  %s.next = add i64 %s, 1
  %rest = icmp ult i64 %s.next, %threads
  br i1 %rest, label %slot, label %start
start:
  call void @polyc_parallel_for(ptr %pool, ptr @runners, ptr %run, i64 0, i64 %threads)
  br label %done
done:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @usleep(i32)
"""


def graph_words(after: Sequence[Sequence[int]]) -> list[int]:
    """The `graph` argument: `after` has for each task those that must be done before it."""
    followers: list[list[int]] = [[] for _ in after]
    for k, earlier in enumerate(after):
        for e in earlier:
            followers[e].append(k)
    begins = [0]
    for f in followers:
        begins.append(begins[-1] + len(f))
    return [len(after), *(len(a) for a in after), *begins, *(k for f in followers for k in f)]
