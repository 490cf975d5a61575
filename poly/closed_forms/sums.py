"""Sums of many formulas, which stay apart where their cases would only multiply each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polyc.poly.closed_forms.formula import Formula
from polyc.poly.closed_forms.summed import Summed
from polyc.poly.records import dataclass

SHORT = 1_200
"""Characters of formulas that are added up to one of as few cases as there are."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A number that depends on sizes: the sum of its `parts`, each so often as `times` says. `names`: the sizes."""

    parts: tuple[Formula | Summed, ...]
    times: tuple[int, ...]
    names: tuple[str, ...]

    @staticmethod
    def of(found: Sequence[Formula | Summed]) -> Sum:
        """Of one or more formulas in the same sizes, the first of them a closed form."""
        often: dict[str, int] = {}
        first: dict[str, Formula | Summed] = {}
        for f in found:
            text = str(f)
            often[text] = often.get(text, 0) + 1
            first.setdefault(text, f)
        closed = {t: f for t, f in first.items() if isinstance(f, Formula)}
        plain = [t for t, f in closed.items() if len(t) <= SHORT and len(f.pieces) <= 1]
        if sum(map(len, closed)) <= SHORT:
            plain = list(closed)
        nothing = found[0] * 0
        assert isinstance(nothing, Formula)
        short = Formula.total([nothing, *(closed[t] * often[t] for t in plain)])
        long = [t for t in first if t not in plain]
        parts = ([short] if short.pieces or not long else []) + [first[t] for t in long]
        times = [1] * (len(parts) - len(long)) + [often[t] for t in long]
        return Sum(tuple(parts), tuple(times), found[0].names)

    @property
    def exact(self) -> bool:
        """Whether it is the number itself and no bound."""
        return all(f.exact for f in self.parts)

    @property
    def why(self) -> str:
        """What makes it a bound."""
        return next((f.why for f in self.parts if f.why), "")

    def __call__(self, sizes: Mapping[str, int] | None = None, /, **more: int) -> int:
        """The number for these sizes.

        Raises:
            ArgumentError: a size is missing, unknown or outside the context.
        """
        return sum(k * f(sizes, **more) for k, f in zip(self.times, self.parts, strict=True))

    def lines(self) -> list[str]:
        """The parts as text; the sum of them is meant."""
        if len(self.parts) == 1 and self.times == (1,):
            return [str(self.parts[0])]
        texts = (str(f).removeprefix("at most ") for f in self.parts)
        return [t if k == 1 else f"{k}*({t})" for k, t in zip(self.times, texts, strict=True)]

    def __str__(self) -> str:
        lines = self.lines()
        if len(lines) == 1:
            return lines[0]
        return ("" if self.exact else "at most ") + "the sum of " + ", and ".join(lines)
