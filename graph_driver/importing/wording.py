"""How foreign error messages are worded for people."""

from __future__ import annotations


def one_line(error: BaseException | str, limit: int = 200) -> str:
    """The first meaningful line of an error's text, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
