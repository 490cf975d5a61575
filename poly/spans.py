"""Where the time of compiling goes: named stretches of it, nested as calls are, kept while somebody records.

Times are of the machine's monotonic clock, so stretches of several processes lie beside each other as they were.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, field, replace
from typing import Any

from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Span:
    """A stretch of time: from `start` to `end` in seconds of the clock, of which a processor was at work for
    `processor` seconds, in a process; `about` says more."""

    name: str
    start: float
    end: float
    processor: float
    process: int
    about: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Plain data; `Span(**data)` is the span back."""
        return asdict(self)


_kept: ContextVar[list[Span] | None] = ContextVar("spans", default=None)


@contextmanager
def recording() -> Iterator[list[Span]]:
    """The list of what ends within the block; who records around it does not get that."""
    spans: list[Span] = []
    token = _kept.set(spans)
    try:
        yield spans
    finally:
        _kept.reset(token)


@contextmanager
def span(name: str, **about: Any) -> Iterator[None]:
    """Name what the block does. Costs next to nothing when nobody records."""
    if _kept.get() is None:
        yield
        return
    start, spent = time.monotonic(), time.thread_time()
    try:
        yield
    finally:
        keep(Span(name, start, time.monotonic(), time.thread_time() - spent, os.getpid(), about))


def keep(*spans: Span) -> None:
    """Spans that were measured elsewhere, such as in another process."""
    kept = _kept.get()
    if kept is not None:
        kept += spans


def about(spans: Sequence[Span], **more: Any) -> list[Span]:
    """The spans, of which each says `more`."""
    return [replace(s, about={**s.about, **more}) for s in spans]
