"""How sizes and foreign error messages are worded for people."""

from __future__ import annotations


def one_line(error: BaseException | str, limit: int = 200) -> str:
    """The first meaningful line of an error's text, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def human(nbytes: float) -> str:
    """A byte count in decimal units, as it is printed everywhere."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{int(nbytes)} B"
