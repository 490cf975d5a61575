"""A native handler of SIGINT: sets a flag that native programs read, and tells isl to give up.

A handler in C is needed because Python runs its own only between two bytecodes. Signals interrupt the main thread
wherever it is, so the handler only stores a number, calls `isl_ctx_abort` (which stores a number) and then the
handler that was there before: Python's.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import struct
from typing import Any

from polyc.poly.errors import PolycError

FLAG, ABORT, CONTEXT, PREVIOUS = 0, 8, 16, 24
"""Offsets in the handler's cell, in bytes: 1 after a SIGINT; a function and its argument (null: none); a handler."""

TEXT = """
target triple = "{triple}"
@polyc_interrupt_cell = global [4 x i64] zeroinitializer, align 16
define void @polyc_interrupt(i32 %signal) {{
entry:
  store atomic i64 1, ptr @polyc_interrupt_cell seq_cst, align 8
  %abort.at = getelementptr i8, ptr @polyc_interrupt_cell, i64 8
  %abort = load ptr, ptr %abort.at, align 8
  %none = icmp eq ptr %abort, null
  br i1 %none, label %chain, label %tell
tell:
  %context.at = getelementptr i8, ptr @polyc_interrupt_cell, i64 16
  %context = load ptr, ptr %context.at, align 8
  call void %abort(ptr %context)
  br label %chain
chain:
  %previous.at = getelementptr i8, ptr @polyc_interrupt_cell, i64 24
  %previous = load ptr, ptr %previous.at, align 8
  %number = ptrtoint ptr %previous to i64
  %real = icmp ugt i64 %number, 1
  br i1 %real, label %call, label %end
call:
  call void %previous(i32 %signal)
  br label %end
end:
  ret void
}}
"""


class Handler:
    """The handler of this process. `arm` and `disarm` are for the main thread."""

    def __init__(self) -> None:
        from polyc.emit import targets
        from polyc.emit.llvm import jit

        target = targets.get(None)
        image = jit.build_object(TEXT.format(triple=target.triple), target, 0)
        self._library = jit.Library([image], ["polyc_interrupt", "polyc_interrupt_cell"])
        self.address = self._library.address("polyc_interrupt")
        self.flag_at = self._library.address("polyc_interrupt_cell") + FLAG
        self._cell = (ctypes.c_int64 * 4).from_address(self.flag_at)
        process = ctypes.CDLL(None)
        self._signal = process.signal
        self._signal.argtypes, self._signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        self._siginterrupt = process.siginterrupt
        self._context: int | None = None
        self._armed = 0

    def knows_isl(self, context: Any) -> bool:
        """Whether it can tell isl to give up; looks for isl's own object on the first call."""
        if self._context is None:
            self._context = _address_of(context) or 0
            if self._context:
                self._cell[CONTEXT // 8] = self._context
                self._cell[ABORT // 8] = ctypes.cast(_isl().isl_ctx_abort, ctypes.c_void_p).value or 0
        return self._context != 0

    def arm(self) -> None:
        """Handle SIGINT from here on, until as many calls of `disarm`."""
        self._armed += 1
        if self._armed == 1:
            self._cell[FLAG // 8] = 0
            self._cell[PREVIOUS // 8] = self._install(self.address)

    def disarm(self) -> None:
        """Leave SIGINT to whoever had it before (unless somebody else has taken it since)."""
        self._armed -= 1
        if self._armed:
            return
        now = self._install(self._cell[PREVIOUS // 8])
        if now != self.address:
            self._install(now)
        if self._cell[FLAG // 8] and self._context:
            _isl().isl_ctx_resume(ctypes.c_void_p(self._context))
        self._cell[FLAG // 8] = 0

    def _install(self, address: int) -> int:
        previous = int(self._signal(signal.SIGINT, address) or 0)
        self._siginterrupt(signal.SIGINT, 1)  # as Python has it: a signal ends a call of the system that waits
        return previous

    def seen(self) -> bool:
        """Whether there was one since `arm`."""
        return self._cell[FLAG // 8] != 0


@functools.cache
def handler() -> Handler | None:
    """The handler; None where signals are not POSIX's or no code can be made for this machine."""
    if os.name != "posix":
        return None
    try:
        return Handler()
    except (PolycError, OSError, AttributeError):
        return None


@functools.cache
def _isl() -> ctypes.CDLL:
    import islpy._isl as binding

    return ctypes.CDLL(binding.__file__)


def _address_of(context: Any) -> int | None:
    """Where isl's object of an `isl.Context` is. islpy does not tell, so every word of the Python object is tried:
    isl's object is the one that changes when its limit of operations does. Memory is read by way of the system, which
    refuses addresses that are none."""
    magic = (0x5EED_1CE5, 0x7AB5_0DD5)  # limits that nobody has
    words = struct.unpack("6Q", ctypes.string_at(id(context), 48))
    limit = context.get_max_operations()
    found = []
    try:
        isl = _isl()
        isl.isl_ctx_get_max_operations.argtypes = [ctypes.c_void_p]
        isl.isl_ctx_get_max_operations.restype = ctypes.c_ulong
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            for word in dict.fromkeys(words):
                hits = True
                for number in magic:
                    context.set_max_operations(number)
                    try:
                        memory.seek(word)
                        hits = hits and struct.pack("Q", number) in memory.read(2048)
                    except (OSError, ValueError, OverflowError):
                        hits = False
                if hits and isl.isl_ctx_get_max_operations(word) == magic[-1]:
                    found.append(word)
    except (OSError, AttributeError):
        return None
    finally:
        context.set_max_operations(limit)
    return found[0] if len(found) == 1 else None
