"""Whether compiling takes schedules from the tuning database: only when asked, so that builds stay the same.

Asked for by `tuned=True` (`--tuned` on the command line) or by `POLYC_TUNED=1` in the environment, which reaches calls
of operators too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from polyc.poly.errors import PolycError

if TYPE_CHECKING:  # compiled models start without isl
    from polyc.graph_driver.backends.protocol import Platform
    from polyc.poly.scop import Scop
    from polyc.poly.target import Target
    from polyc.scheduler.schedule import Schedule

_asked: ContextVar[bool | None] = ContextVar("tuned", default=None)


@contextmanager
def tuned(wanted: bool | None) -> Iterator[None]:
    """Within the block the database is used or not; None: as the environment says."""
    token = _asked.set(wanted)
    try:
        yield
    finally:
        _asked.reset(token)


def asked() -> bool:
    """Whether the database is to be used now."""
    found = _asked.get()
    return os.environ.get("POLYC_TUNED", "") not in ("", "0") if found is None else found


def keyed(key: str) -> str:
    """A cache key of something compiled from several kernels: another one for each state of the database in use."""
    if not asked():
        return key
    from polyc.emit import cache
    from polyc.graph_driver.worker.database import stamp

    return cache.make_key("tuned", key, stamp())


def trace_for(scop: Scop, target: Target, threads: int) -> str:
    """The trace to use for a kernel; empty: the automatic schedule."""
    if not asked() or scop.params:
        return ""
    from polyc.graph_driver.worker.database import find, key_of

    record = find(key_of(scop, target, threads))
    return "" if record is None else record.trace


def trace_for_text(text: str, platform: Platform) -> str:
    """The same for a Scop as JSON text; empty where the back end does not take such schedules."""
    if not platform.backend.takes_tuned or not asked():
        return ""
    from polyc.poly import json_io

    return trace_for(json_io.loads(text), platform.machine, platform.threads)


def schedule_for(scop: Scop, target: Target, threads: int) -> Schedule | None:
    """The tuned schedule of a Scop of fixed sizes; None: take the automatic one."""
    trace = trace_for(scop, target, threads)
    return replayed(scop, trace) if trace else None


def replayed(scop: Scop, trace: str) -> Schedule | None:
    """The schedule of a trace; None when it does not fit any longer (another version of polyc made it)."""
    from polyc.scheduler.schedule import Schedule

    try:
        return Schedule.replay(scop, trace)
    except PolycError:
        return None
