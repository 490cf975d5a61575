"""The refusal of a program that has no derivative."""

from __future__ import annotations

from polyc.poly.errors import PolycError
from polyc.poly.expr import Span


class NotDifferentiable(PolycError):
    """A program, or a part of it, that has no derivative: one line with the place, the reason and what to do."""

    code = "P102"

    def __init__(self, message: str, span: Span | None = None) -> None:
        super().__init__(message if span is None else f"{span}: {message}")
