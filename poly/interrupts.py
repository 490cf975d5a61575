"""Ctrl-C while isl is at work.

Python notices a signal when the call that it is in returns, and one isl call may take minutes; what is raised in
a callback of isl is lost altogether. So while `interruptible` is entered, a native handler
(`polyc.emit.run_time.interrupts`) runs before Python's own: it tells isl to give up, whose calls then fail one after
another until Python has the `KeyboardInterrupt`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

from polyc.poly import hooks

_inside = False


@contextmanager
def interruptible() -> Iterator[None]:
    """Run the body such that Ctrl-C ends it within a fraction of a second, also in the middle of an isl call.

    Does nothing inside another one, in threads other than the main one (signals are not theirs), and where the
    program has a handler of its own for SIGINT: it says what happens then.

    Raises:
        KeyboardInterrupt: there was one.
    """
    global _inside
    handler = None if _inside or not _may_handle() else _native()
    if handler is None:
        yield
        return
    context = isl.DEFAULT_CONTEXT
    limit = context.get_max_operations()
    _inside = True
    handler.arm()
    try:
        yield
    except Exception:
        if handler.seen():  # isl's way of saying that it gave up, or what somebody made of that
            raise KeyboardInterrupt from None
        raise
    finally:
        interrupted = handler.seen()
        handler.disarm()
        context.resume()
        if interrupted:
            context.set_max_operations(limit)
        _inside = False
    if interrupted:
        raise KeyboardInterrupt


def _may_handle() -> bool:
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _native() -> hooks.Interrupts | None:
    """The native handler, if this platform has it and it can find isl's context."""
    found: hooks.Interrupts | None = hooks.resolve("interrupts")() if hooks.registered("interrupts") else None
    return found if found is not None and found.knows_isl(isl.DEFAULT_CONTEXT) else None
