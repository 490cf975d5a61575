"""How deeply programs may be nested: walks over trees and loops call themselves once a level."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from polyc.poly.budgets import OverBudget

CALLS = 3000
"""Nested calls of Python while something is compiled: about 3 MB of the 8 MB that a program's first thread has."""


@contextmanager
def nested(what: str) -> Iterator[None]:
    """Compile one thing with room for `CALLS` nested calls, in the first thread of a program; others have smaller
    stacks, and keep Python's limit.

    Raises:
        OverBudget: that was not enough.
    """
    before = sys.getrecursionlimit()
    if threading.current_thread() is threading.main_thread() and before < CALLS:
        sys.setrecursionlimit(CALLS)
    try:
        yield
    except RecursionError:
        limit = sys.getrecursionlimit()
        raise OverBudget(
            f"{what}: loops, buffers or expressions are nested too deeply ({limit} nested calls): "
            "write it as several operators, or long expressions as several assignments"
        ) from None
    finally:
        sys.setrecursionlimit(before)
