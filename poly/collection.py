"""Python's collection of cyclic garbage while something is compiled.

A compilation makes hundreds of thousands of objects, of which most live until its end and few are parts of a cycle.
Python looks at the young ones after every 700 and at all of them again and again, which takes some hundredths of the
whole time and finds some megabytes. While `seldom_collected` is entered it looks far less often.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 200_000
"""Objects that come between two looks: up to some 30 MB of garbage wait."""

_lock = threading.Lock()
_entered = 0
_before: tuple[int, int, int] = gc.get_threshold()
_ours = (YOUNG, _before[1], _before[2])


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Run the body with few collections; the program's own thresholds are back when the last thread has left one.

    Does nothing where the program collects as seldom, or has thresholds of 0 (never). Thresholds that somebody else
    sets meanwhile stay.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _entered, _before, _ours
    with _lock:
        _entered += 1
        if _entered > 1:
            return
        _before = _ours = gc.get_threshold()
        if 0 < _before[0] < YOUNG:
            _ours = (YOUNG, *_before[1:])
            gc.set_threshold(*_ours)


def _leave() -> None:
    global _entered
    with _lock:
        _entered -= 1
        if _entered == 0 and gc.get_threshold() == _ours:
            gc.set_threshold(*_before)
