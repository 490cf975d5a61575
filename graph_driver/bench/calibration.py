"""What this machine's arithmetic, caches and memory do, measured once by small loops and kept in the cache folder.

The loops are LLVM IR, so that nothing but the loop is measured, and their time is that of the thread, so that other
programs disturb less; the best of some runs counts. All together they take about a second.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from polyc.poly.target import Target
from polyc.scheduler.cost.model import LEVELS, Machine

if TYPE_CHECKING:
    from polyc.emit.llvm.jit import Library

ACCUMULATORS = 10  # independent chains: latency of a multiply-add times their number a cycle, at the least
ROUNDS = 200_000
REPEATS = 5
STREAMED = 32 << 20  # bytes of each run that measures a level
MOST_BYTES = 256 << 20
CHAIN = 64  # operations of the dependent chain in one iteration
STREAMS = 8  # vectors read or written in one iteration
SUFFIX = ".machine"


def machine(target: Target, again: bool = False) -> Machine:
    """The figures of this machine: from the cache folder, or measured now (`again`: in any case).

    Raises:
        BuildError: the machine's code cannot be built.
    """
    from polyc.emit import cache as disk

    key = disk.make_key("machine", repr(target))
    found = None if again else disk.get(key, SUFFIX)
    if found is not None:
        try:
            return Machine.from_data(json.loads(found))
        except (ValueError, KeyError, TypeError):
            pass  # not ours: measured again and overwritten
    made = _measured(target)
    disk.put(key, json.dumps(made.data()).encode(), SUFFIX)
    _once.cache_clear()
    return made


@cache
def _once(target: Target) -> Machine:
    return machine(target)


def this_machine(target: Target) -> Machine:
    """`machine`, looked up once in a process."""
    return _once(target)


def _measured(target: Target) -> Machine:
    from polyc.emit.llvm import jit
    from polyc.emit.run_time import threadpool

    lanes = max(1, target.vector_bits // 32)
    names = ["polyc_chain", "polyc_peak", "polyc_operations", "polyc_read", "polyc_write", "polyc_empty", "polyc_body"]
    library = jit.Library([jit.build_object(_text(target.triple, lanes), target, 2)], names)
    hertz = CHAIN * ROUNDS / _best(_counted(library, "polyc_chain"))
    flops = 2.0 * lanes * ACCUMULATORS * ROUNDS / _best(_counted(library, "polyc_peak"))
    simple = 2.0 * ACCUMULATORS * ROUNDS / _best(_counted(library, "polyc_operations"))
    data = np.ones(min(max(4 * target.l3, 64 << 20), MOST_BYTES) + 64, np.uint8)
    start = data.__array_interface__["data"][0] + -data.__array_interface__["data"][0] % 64
    sizes = {"l2": target.l2 // 2, "l3": max(2 * target.l2, target.l3 // 4), "memory": len(data) - 64}
    rates: dict[str, dict[str, float]] = {
        way: {n: _rate(library, f"polyc_{way}", start, sizes[n], lanes) / hertz for n in LEVELS}
        for way in ("read", "write")
    }
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    call = _per_call(kernel(library.address("polyc_empty")))
    entry = _entry(library, threadpool.handle(2) if target.threads > 1 else 0)
    return Machine(hertz, flops / hertz, simple / hertz, rates["read"], rates["write"], call * hertz, entry * hertz)


def _counted(library: Library, name: str) -> Callable[[], object]:
    run = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(library.address(name))
    return lambda: run(ROUNDS)


def _rate(library: Library, name: str, start: int, size: int, lanes: int) -> float:
    """Bytes a second over a buffer of `size` bytes (cut to whole iterations), after one run to warm up."""
    step = 4 * lanes * STREAMS
    count = size // step
    rounds = max(1, STREAMED // (count * step))
    run = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address(name))
    run(start, count, 1)
    return rounds * count * step / _best(lambda: run(start, count, rounds))


def _per_call(function: Callable[..., object], calls: int = 2000) -> float:
    """Seconds of a call from Python, as a plan's step in `eager` mode makes it."""

    def many() -> None:
        for _ in range(calls):
            function(None, None, None)

    return _best(many) / calls


def _entry(library: Library, pool: int) -> float:
    """Seconds to run an empty parallel loop of one iteration for each of two threads."""
    if not pool:
        return 1e-6
    share = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    )(ctypes.c_void_p.from_address(pool).value or 0)  # fmt: skip
    body = library.address("polyc_body")

    def many() -> None:
        for _ in range(200):
            share(pool, body, None, 0, 2)

    return _best(many) / 200


def _best(run: Callable[[], object]) -> float:
    return min(_seconds(run) for _ in range(REPEATS))


def _seconds(run: Callable[[], object]) -> float:
    start = time.thread_time()
    run()
    return max(time.thread_time() - start, 1e-9)


# ---- the loops -----------------------------------------------------------------------------------


def _text(triple: str, lanes: int) -> str:
    """All loops as one module of LLVM IR."""
    v = f"<{lanes} x float>"
    fma = f"@llvm.fma.v{lanes}f32"
    maximum = f"@llvm.maxnum.v{lanes}f32"
    small = f"<{', '.join(['float 0x3EB0C6F7A0000000'] * lanes)}>"
    ones = f"<{', '.join(['float 1.0'] * lanes)}>"
    multiply_adds = [f"%b{a} = call {v} {fma}({v} %a{a}, {v} {ones}, {v} {small})" for a in range(ACCUMULATORS)]
    # One addition and one maximum each: what does not run on the units for multiply-adds alone.
    simple = [
        line
        for a in range(ACCUMULATORS)
        for line in (f"%c{a} = fadd {v} %a{a}, {small}", f"%b{a} = call nnan nsz {v} {maximum}({v} %c{a}, {v} {ones})")
    ]
    return "\n".join([
        f'target triple = "{triple}"',
        f"declare {v} {fma}({v}, {v}, {v})",
        f"declare {v} {maximum}({v}, {v})",
        _loop("polyc_peak", v, ones, multiply_adds, lanes),
        _loop("polyc_operations", v, ones, simple, lanes),
        _chain(),
        _stream("polyc_read", v, lanes, write=False),
        _stream("polyc_write", v, lanes, write=True),
        "define void @polyc_empty(ptr %a, ptr %b, ptr %c) {\n  ret void\n}",
        "define void @polyc_body(i64 %from, i64 %to, ptr %c) {\n  ret void\n}",
        "",
    ])  # fmt: skip


def _loop(name: str, v: str, first: str, body: list[str], lanes: int) -> str:
    """`n` times the body, which makes `%b0` ... of `%a0` ...; gives the sum of one lane of each."""
    lines = [f"define float @{name}(i64 %n) {{", "entry:", "  br label %loop", "loop:",
             "  %k = phi i64 [ 0, %entry ], [ %k.next, %loop ]"]  # fmt: skip
    lines += [f"  %a{a} = phi {v} [ {first}, %entry ], [ %b{a}, %loop ]" for a in range(ACCUMULATORS)]
    lines += [f"  {line}" for line in body]
    lines += ["  %k.next = add i64 %k, 1", "  %more = icmp slt i64 %k.next, %n",
              "  br i1 %more, label %loop, label %done", "done:"]  # fmt: skip
    return "\n".join([*lines, *_sum(v, ACCUMULATORS), "}"])


def _sum(v: str, count: int) -> list[str]:
    lines, total = [], "0.0"
    for a in range(count):
        lines += [f"  %e{a} = extractelement {v} %b{a}, i64 0", f"  %s{a} = fadd float {total}, %e{a}"]
        total = f"%s{a}"
    return [*lines, f"  ret float {total}"]


def _chain() -> str:
    """Additions and exclusive ors by turns, each of one cycle and waiting for the one before."""
    lines = ["define float @polyc_chain(i64 %n) {", "entry:", "  br label %loop", "loop:",
             "  %k = phi i64 [ 0, %entry ], [ %k.next, %loop ]",
             f"  %x0 = phi i64 [ %n, %entry ], [ %x{CHAIN}, %loop ]"]  # fmt: skip
    for i in range(CHAIN):
        lines.append(f"  %x{i + 1} = {'add' if i % 2 else 'xor'} i64 %x{i}, {12345 + i}")
    lines += ["  %k.next = add i64 %k, 1", "  %more = icmp slt i64 %k.next, %n",
              "  br i1 %more, label %loop, label %done", "done:", f"  %r = sitofp i64 %x{CHAIN} to float",
              "  ret float %r", "}"]  # fmt: skip
    return "\n".join(lines)


def _stream(name: str, v: str, lanes: int, write: bool) -> str:
    """`rounds` times over `count` groups of vectors: added up, or written."""
    lines = [f"define float @{name}(ptr %data, i64 %count, i64 %rounds) {{", "entry:", "  br label %round", "round:",
             "  %r = phi i64 [ 0, %entry ], [ %r.next, %next ]"]  # fmt: skip
    lines += [f"  %o{a} = phi {v} [ zeroinitializer, %entry ], [ %b{a}, %next ]" for a in range(STREAMS)]
    lines += ["  br label %loop", "loop:", "  %k = phi i64 [ 0, %round ], [ %k.next, %loop ]"]
    lines += [f"  %a{a} = phi {v} [ %o{a}, %round ], [ %b{a}, %loop ]" for a in range(STREAMS)]
    lines += [f"  %at = mul i64 %k, {STREAMS * lanes}", "  %p = getelementptr float, ptr %data, i64 %at"]
    for a in range(STREAMS):
        lines.append(f"  %p{a} = getelementptr float, ptr %p, i64 {a * lanes}")
        if write:
            lines += [f"  store volatile {v} %a{a}, ptr %p{a}, align 16", f"  %b{a} = fadd {v} %a{a}, zeroinitializer"]
        else:
            lines += [f"  %l{a} = load {v}, ptr %p{a}, align 16", f"  %b{a} = fadd {v} %a{a}, %l{a}"]
    lines += ["  %k.next = add i64 %k, 1", "  %more = icmp slt i64 %k.next, %count",
              "  br i1 %more, label %loop, label %next", "next:", "  %r.next = add i64 %r, 1",
              "  %again = icmp slt i64 %r.next, %rounds", "  br i1 %again, label %round, label %done"]  # fmt: skip
    return "\n".join([*lines, "done:", *_sum(v, STREAMS), "}"])
