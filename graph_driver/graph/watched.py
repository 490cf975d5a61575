"""What a compilation reads beside its source, and what it warns of: whoever keeps its result has to know both."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path

from polyc.graph_driver.graph.stamps import Stamp, now, stamp_of
from polyc.poly.records import dataclass


class AnnotationWarning(UserWarning):
    """A model file declares a shape that its own operators contradict; the model runs as the operators say."""


@dataclass
class Watched:
    """Files that were opened, by where the model says that they are, with their stamps before and when that was; and
    warnings, by the names of their categories."""

    files: dict[str, tuple[Path, Stamp, int]] = field(default_factory=dict)
    warnings: list[tuple[str, str]] = field(default_factory=list)


_watched: ContextVar[Watched | None] = ContextVar("polyc_watched", default=None)


@contextmanager
def watching() -> Iterator[Watched]:
    """Collect what the body opens and warns of; an outer block gets none of it."""
    found = Watched()
    token = _watched.set(found)
    try:
        yield found
    finally:
        _watched.reset(token)


def opening(location: str, path: Path) -> None:
    """A file is about to be read that the model calls `location`. Raises `OSError`: there is none."""
    found = _watched.get()
    if found is not None:
        start = now()
        found.files.setdefault(location, (path, stamp_of(path), start))


def warn(text: str, category: type[Warning], stacklevel: int) -> None:
    """`warnings.warn`, for whoever watches, too."""
    found = _watched.get()
    if found is not None:
        found.warnings.append((category.__name__, text))
    warnings.warn(text, category, stacklevel + 1)
