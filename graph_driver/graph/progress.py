"""A progress bar on a terminal, and nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID


Progress = Callable[[str, int, int], None]
"""Called with a stage, how much of it is done, and how much there is."""


@contextmanager
def progress_bar(quiet: bool = False, title: str = "") -> Iterator[Progress | None]:
    """A bar on stderr when that is a terminal, else nothing; `title` stands before the stages."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def update(stage: str, done: int, total: int) -> None:
            if title and stage not in tasks and tasks:
                bar.update(tasks["import"], completed=1)
            if stage not in tasks:
                tasks[stage] = bar.add_task(escape(f"{title}: {stage}" if title else stage), total=total)
            bar.update(tasks[stage], completed=done, total=total)

        if title:
            update("import", 0, 1)
        yield update
