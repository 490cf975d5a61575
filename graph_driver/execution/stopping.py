"""Ctrl-C ends a run at its next step.

A run is a native call, during which Python handles no signals. So runs in the main thread that may take long are
watched: a native handler (`polyc.emit.run_time.interrupts`) sets a word that the program reads before every step.
Runs in other threads, and in programs with a handler of their own, go on.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from polyc.graph_driver.execution import entry
from polyc.graph_driver.execution.run_memory import GOING, RunMemory

if TYPE_CHECKING:
    from polyc.emit.run_time.interrupts import Handler

LONG = 0.05
"""Seconds: a run after one as long as that is watched. Shorter ones are over before anybody notices."""
LARGE = 4 << 20
"""Bytes of arena and weights from which the first run is watched."""


class Stopping:
    """Watches the runs of one program."""

    def __init__(self, size: int) -> None:
        """`size`: bytes that a run works on."""
        self._watch = size >= LARGE

    def call(self, segments: Sequence[Callable[[int], None]], memory: RunMemory) -> None:
        """Run all segments.

        Raises:
            KeyboardInterrupt: there was a SIGINT; the run is not complete.
        """
        if self._watch:
            with self.watched(memory):
                for segment in segments:
                    segment(memory.at)
            return
        start = time.perf_counter()
        for segment in segments:
            segment(memory.at)
        self._watch = time.perf_counter() - start > LONG

    @contextmanager
    def watched(self, memory: RunMemory) -> Iterator[None]:
        """Around the native calls of one run. Raises `KeyboardInterrupt` as `call` does."""
        handler = _handler()
        if handler is None:
            yield
            return
        start = time.perf_counter()
        handler.arm()
        memory.bases[entry.STOP] = handler.flag_at
        try:
            yield
        finally:
            memory.bases[entry.STOP] = GOING
            stopped = handler.seen()
            handler.disarm()
        if stopped:
            raise KeyboardInterrupt
        self._watch = time.perf_counter() - start > LONG


def _handler() -> Handler | None:
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        return None
    from polyc.emit.run_time import interrupts

    return interrupts.handler()
