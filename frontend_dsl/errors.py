"""`DslError`: a program outside the language, shown with place, caret, reason and remedy."""

from __future__ import annotations

import itertools
from typing import Any

from polyc.poly.errors import PolycError
from polyc.poly.expr import Span

MOST_CALLS = 6  # that a message lists


class DslError(PolycError, SyntaxError):
    """A hybrid-script program that polyc refuses.

    `str()` gives the whole message: `file:line:col: reason`, the source line with a
    caret, the hint, and for inlined code the places of the calls. The attributes of
    `SyntaxError` (`filename`, `lineno`, `offset`, `text`, ...) are filled in, so editors
    and `traceback` point at the place too; the hint is a note (`add_note`), which they show.
    """

    code = "P101"

    def __init__(self, reason: str, span: Span | None = None, hint: str = "") -> None:
        if span is None:
            super().__init__(reason)
        else:
            end = span.end_col + 1 if span.end_line == span.line else None
            super().__init__(reason, (span.file, span.line, span.col + 1, span.text, span.end_line, end))
        self.reason = reason
        self.span = span
        self.hint = hint
        self.calls: tuple[Span, ...] = ()
        self._remark()

    def inlined_from(self, call: Span) -> None:
        """Say that the program at fault was inlined at this call (innermost first)."""
        self.calls = (*self.calls, call)
        self._remark()

    def _remark(self) -> None:
        """A traceback of a SyntaxError shows its first line, the place, and its notes."""
        self.__notes__ = self._after()

    def __str__(self) -> str:
        lines = [self.reason if self.span is None else f"{self.span}: {self.reason}"]
        if self.span is not None and self.span.text:
            lines += [f"    {self.span.text.expandtabs()}", f"    {_caret(self.span)}"]
        return "\n".join([*lines, *self._after()])

    def _after(self) -> list[str]:
        """The hint, and the calls that inlined the program."""
        lines = [f"hint: {self.hint}"] if self.hint else []
        found = [(call, len(list(group))) for call, group in itertools.groupby(self.calls)]
        for call, count in found[:MOST_CALLS]:
            times = f" ({count} times)" if count > 1 else ""
            lines.append(f"inlined from {call}: {call.text.strip()}{times}")
        if len(found) > MOST_CALLS:
            lines.append(f"and from {len(found) - MOST_CALLS} calls more")
        return lines

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.reason, self.span, self.hint, self.calls)


def _again(reason: str, span: Span | None, hint: str, calls: tuple[Span, ...]) -> DslError:
    """The error from its parts, as another process gets it."""
    error = DslError(reason, span, hint)
    for call in calls:
        error.inlined_from(call)
    return error


def _caret(span: Span) -> str:
    before = len(span.text[: span.col].expandtabs())
    end = span.end_col if span.end_line == span.line else len(span.text.rstrip())
    width = max(1, len(span.text[:end].expandtabs()) - before)
    return " " * before + "^" + "~" * (width - 1)
