"""Files and folders of the disk cache: written so that concurrent processes see all of them or nothing, and counted."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

UNFINISHED = ".new-"
"""How the names of what is being written start."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file by renaming it into place. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def unfinished_folder(parent: Path) -> Path:
    """A new folder beside finished ones. Raises `OSError`."""
    parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=parent, prefix=UNFINISHED))


def finish_folder(temporary: Path, place: Path) -> None:
    """Put a folder into place, unless another process was first: equal keys have equal contents. Raises `OSError`."""
    try:
        temporary.rename(place)
    except OSError:
        if not place.is_dir():
            raise
        remove_folder(temporary)


def remove_folder(folder: Path) -> None:
    """Take a folder away such that nobody sees half of it: it gets another name first. Does not raise."""
    with contextlib.suppress(OSError):
        gone = unfinished_folder(folder.parent)
        with contextlib.suppress(OSError):
            folder.rename(gone / "was")
        shutil.rmtree(gone, ignore_errors=True)
