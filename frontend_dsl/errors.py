"""`DslError`: a program outside the language, shown with place, caret, reason and remedy."""

from __future__ import annotations

import itertools

from polyc.poly.errors import PolycError
from polyc.poly.expr import Span

MOST_CALLS = 6  # that a message lists


class DslError(PolycError, SyntaxError):
    """A hybrid-script program that polyc refuses.

    `str()` gives the whole message: `file:line:col: reason`, the source line with a
    caret, the hint, and for inlined code the places of the calls. The attributes of
    `SyntaxError` (`filename`, `lineno`, `offset`, `text`, ...) are filled in, so editors
    and `traceback` point at the place too.
    """

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

    def __str__(self) -> str:
        lines = [self.reason if self.span is None else f"{self.span}: {self.reason}"]
        if self.span is not None and self.span.text:
            lines += [f"    {self.span.text.expandtabs()}", f"    {_caret(self.span)}"]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        found = [(call, len(list(group))) for call, group in itertools.groupby(self.calls)]
        for call, count in found[:MOST_CALLS]:
            times = f" ({count} times)" if count > 1 else ""
            lines.append(f"inlined from {call}: {call.text.strip()}{times}")
        if len(found) > MOST_CALLS:
            lines.append(f"and from {len(found) - MOST_CALLS} calls more")
        return "\n".join(lines)


def _caret(span: Span) -> str:
    before = len(span.text[: span.col].expandtabs())
    end = span.end_col if span.end_line == span.line else len(span.text.rstrip())
    width = max(1, len(span.text[:end].expandtabs()) - before)
    return " " * before + "^" + "~" * (width - 1)
