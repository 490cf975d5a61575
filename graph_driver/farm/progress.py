"""The progress bar of a farm: what is done, how fast, and the best so far."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class FarmBar:
    """A bar for each thing in work; one line for all of them."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def step(self, label: str, done: int, total: int) -> None:
        """So much of `label` is done."""
        if self._bar is None:
            return
        if label not in self._tasks:
            from rich.markup import escape

            self._tasks[label] = self._bar.add_task(escape(label), total=total, said="")
        self._bar.update(self._tasks[label], completed=done, total=total, visible=done < total)

    def seen(self, rate: float, best: float) -> None:
        """Trials a second, and the best ratio of untuned to tuned time so far."""
        if self._bar is None:
            return
        for task in self._tasks.values():
            self._bar.update(task, said=f"{rate:.2f} trials/s, best {best:.2f}x")


@contextmanager
def farm_bar(quiet: bool = False) -> Iterator[FarmBar]:
    """A bar on stderr when that is a terminal, else nothing."""
    if quiet or not sys.stderr.isatty():
        yield FarmBar(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.fields[said]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield FarmBar(bar)
