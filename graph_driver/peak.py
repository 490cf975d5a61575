"""How fast this machine's arithmetic and memory are, measured: what shares of peak are relative to."""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from functools import cache

import numpy as np

from poly.target import Target

ACCUMULATORS = 10  # independent chains: latency of a multiply-add times their number a cycle, at the least
ROUNDS = 200_000
REPEATS = 5
STREAM_BYTES = 64 << 20


@dataclass(frozen=True)
class Peak:
    """Of one thread: multiply-adds counted as two operations on f32, and bytes copied (read and written)."""

    flops_per_second: float
    bytes_per_second: float


@cache
def measured(target: Target) -> Peak:
    """A loop of independent vector multiply-adds, and a copy that no cache holds; the best of some runs each.

    Raises:
        BuildError: the machine's code cannot be built.
    """
    from emit import jit

    lanes = max(1, target.vector_bits // 32)
    library = jit.Library([jit.build_object(_loop(target.triple, lanes), target, 3)], ["polyc_peak"])
    run = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(library.address("polyc_peak"))
    seconds = min(_seconds(lambda: run(ROUNDS)) for _ in range(REPEATS))
    source, copy = np.ones(STREAM_BYTES, np.uint8), np.empty(STREAM_BYTES, np.uint8)
    moved = min(_seconds(lambda: np.copyto(copy, source)) for _ in range(REPEATS))
    return Peak(2.0 * lanes * ACCUMULATORS * ROUNDS / seconds, 2.0 * STREAM_BYTES / moved)


def _seconds(run: object) -> float:
    assert callable(run)
    start = time.thread_time()
    run()
    return max(time.thread_time() - start, 1e-9)


def _loop(triple: str, lanes: int) -> str:
    """`ROUNDS` times `a[k] = fma(a[k], x, y)` for all chains, and the sum of one lane of each."""
    v = f"<{lanes} x float>"
    fma = f"@llvm.fma.v{lanes}f32"
    ones = ", ".join(["float 1.0"] * lanes)
    small = ", ".join(["float 0x3EB0C6F7A0000000"] * lanes)
    lines = [f'target triple = "{triple}"', f"declare {v} {fma}({v}, {v}, {v})",
             "define float @polyc_peak(i64 %n) {", "entry:", "  br label %loop", "loop:",
             "  %k = phi i64 [ 0, %entry ], [ %k.next, %loop ]"]  # fmt: skip
    for a in range(ACCUMULATORS):
        lines.append(f"  %a{a} = phi {v} [ <{ones}>, %entry ], [ %b{a}, %loop ]")
    for a in range(ACCUMULATORS):
        lines.append(f"  %b{a} = call {v} {fma}({v} %a{a}, {v} <{ones}>, {v} <{small}>)")
    lines += ["  %k.next = add i64 %k, 1", "  %more = icmp slt i64 %k.next, %n",
              "  br i1 %more, label %loop, label %done", "done:"]  # fmt: skip
    total = "0.0"
    for a in range(ACCUMULATORS):
        lines.append(f"  %e{a} = extractelement {v} %b{a}, i64 0")
        lines.append(f"  %s{a} = fadd float {total}, %e{a}")
        total = f"%s{a}"
    return "\n".join([*lines, f"  ret float {total}", "}", ""])
