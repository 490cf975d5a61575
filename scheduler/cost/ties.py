"""When a predicted figure counts as better than another: by more than the rounding of its formula."""

TIE = 1e-9
"""Shares of a peak and costs of an iteration are of the order of 1, and their formulas round by less than 1e-12."""


def above(a: float, b: float) -> bool:
    """Whether `a` is larger than `b`, and no tie."""
    return a > b + TIE


def below(a: float, b: float) -> bool:
    """Whether `a` is smaller than `b`, and no tie."""
    return a < b - TIE
