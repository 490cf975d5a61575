"""What the runs of a model ask of the C library's allocator. Run in a process with the counter preloaded:

    LD_PRELOAD=counter.so python counted_runs.py MODEL THREADS

prints as JSON how many calls of malloc, calloc, realloc, aligned_alloc, memalign, posix_memalign and mmap all threads
of the process made during 1,000 native runs (`native`), how many a call from Python makes (`python`: NumPy's
`__array_interface__` is a dictionary that lives for an instant), and by how many bytes the memory in use (`bytes`, of
glibc's mallinfo2) and Python's own blocks (`blocks`) grew with 1,000 calls.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from typing import Any

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
static long calls;
static char early[65536];
static size_t used;
#define NEXT(name) static __typeof__(&name) next; \
    if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST)
void *malloc(size_t n); void *calloc(size_t n, size_t m); void *realloc(void *p, size_t n);
void *aligned_alloc(size_t a, size_t n); void *memalign(size_t a, size_t n);
int posix_memalign(void **p, size_t a, size_t n);
void free(void *p);
void *malloc(size_t n) { NEXT(malloc); return next(n); }
void *calloc(size_t n, size_t m) {  /* dlsym itself calls it */
    static __typeof__(&calloc) next; static int asking;
    if (!next) {
        if (asking) { void *p = early + used; used += (n * m + 63) & ~63UL; return p; }
        asking = 1; next = (__typeof__(&calloc))dlsym(RTLD_NEXT, "calloc"); asking = 0;
    }
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    return next(n, m);
}
void free(void *p) {
    static __typeof__(&free) next;
    if ((char *)p >= early && (char *)p < early + sizeof early) return;
    if (!next) next = (__typeof__(&free))dlsym(RTLD_NEXT, "free");
    next(p);
}
void *realloc(void *p, size_t n) { NEXT(realloc); return next(p, n); }
void *aligned_alloc(size_t a, size_t n) { NEXT(aligned_alloc); return next(a, n); }
void *memalign(size_t a, size_t n) { NEXT(memalign); return next(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { NEXT(posix_memalign); return next(p, a, n); }
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off) {
    NEXT(mmap); return next(at, n, prot, flags, fd, off);
}
long counted(void) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
long counted_during(void (*run)(void *), void *argument, int times) {
    long before = counted();
    for (int k = 0; k < times; k++) run(argument);
    return counted() - before;
}
"""
RUNS = 1000


class _Info(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(n, ctypes.c_size_t) for n in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                                               "uordblks", "fordblks", "keepcost")]  # fmt: skip


def measure(path: str, threads: int) -> dict[str, Any]:
    """The counts for one model."""
    from polyc.graph_driver.checking.check import random_input
    from polyc.graph_driver.compile_model import compile_model

    process = ctypes.CDLL(None)
    process.mallinfo2.restype = _Info
    process.counted.restype = process.counted_during.restype = ctypes.c_long

    def in_use() -> int:
        info = process.mallinfo2()
        return int(info.uordblks + info.hblkhd)

    model = compile_model(path, threads=threads, tasks=threads > 1)
    feeds = {n: random_input(n, d, s, 1) for n, (d, s) in model.inputs.items()}
    for _ in range(5):
        model(feeds)
    memory = model.executor()._idle[-1]
    native = sum(
        process.counted_during(segment, ctypes.c_void_p(memory.at), RUNS) for segment in model.executor()._native
    )
    gc.collect()
    gc.disable()
    used, blocks, before = in_use(), sys.getallocatedblocks(), process.counted()
    for _ in range(RUNS):
        model(feeds)
    calls, grown = process.counted() - before, in_use() - used
    probe = process.counted()
    kept = ctypes.create_string_buffer(1 << 20)
    return {
        "native": native, "python": calls / RUNS, "bytes": grown, "blocks": sys.getallocatedblocks() - blocks,
        "arrays": len(model.plan.inputs) + len(model.plan.outputs), "tasks": bool(model.plan.after),
        "probe": process.counted() - probe if len(kept) else 0,  # shows that the counter counts
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
