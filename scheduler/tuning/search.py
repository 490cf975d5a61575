"""The order of trials: the model's favourites and the neighbours of the best so far, by turns.

Deterministic given the outcomes, so that a search that was interrupted goes on where it stopped: outcomes known from
before are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from polyc.poly.records import dataclass
from polyc.scheduler.tuning.space import Candidate


@dataclass(frozen=True)
class Outcome:
    """What a trial showed: `ratio` is the untuned time over the candidate's (above 1: faster), both measured in
    turns in one process; or why there is none. `ran`: a process was started for it (not for what is illegal or the
    same as another)."""

    ratio: float | None
    seconds: float | None = None
    error: str = ""
    ran: bool = True

    @property
    def speed(self) -> float:
        """To order outcomes by: 0 where there is no ratio."""
        return 0.0 if self.ratio is None else self.ratio


Measure = Callable[[Candidate], Outcome]
Seen = Callable[[Candidate, Outcome, int], None]


def search(
    candidates: Sequence[Candidate], known: Mapping[str, Outcome], measure: Measure, trials: int, seen: Seen
) -> dict[str, Outcome]:
    """Try candidates until `trials` of them have run (those of before count), or none are left.

    Args:
        candidates: by predicted time, the least first.
        known: outcomes by name from an earlier search of the same candidates.
        measure: one trial. Whatever it raises ends the search; what was seen before that has been reported.
        seen: called after each outcome with the number of trials that have run.
    """
    wanted = searching(candidates, known, trials, seen)
    try:
        candidate = next(wanted)
        while True:
            candidate = wanted.send(measure(candidate))
    except StopIteration as end:
        return dict(end.value)


def searching(
    candidates: Sequence[Candidate], known: Mapping[str, Outcome], trials: int, seen: Seen
) -> Generator[Candidate, Outcome, dict[str, Outcome]]:
    """`search` for who measures elsewhere: yields the candidate to try, takes its outcome, returns all outcomes."""
    names = {c.name for c in candidates}
    outcomes = {n: o for n, o in known.items() if n in names}
    while _ran(outcomes) < trials:
        following = _next(candidates, outcomes)
        if following is None:
            break
        outcomes[following.name] = outcome = yield following
        seen(following, outcome, _ran(outcomes))
    return outcomes


def likely(candidates: Sequence[Candidate], outcomes: Mapping[str, Outcome], count: int) -> list[Candidate]:
    """Candidates that the search will probably ask for soon: the model's favourites that were not tried yet."""
    return [c for c in candidates if c.name not in outcomes][:count]


def _ran(outcomes: Mapping[str, Outcome]) -> int:
    return sum(o.ran for o in outcomes.values())


def best_of(candidates: Sequence[Candidate], outcomes: Mapping[str, Outcome]) -> Candidate | None:
    """The fastest candidate that is faster than untuned; of equal ones the one that the model prefers."""
    tried = [c for c in candidates if outcomes.get(c.name, Outcome(None)).speed > 1.0]
    return max(tried, key=lambda c: outcomes[c.name].speed, default=None)


def _next(candidates: Sequence[Candidate], outcomes: Mapping[str, Outcome]) -> Candidate | None:
    left = [c for c in candidates if c.name not in outcomes]
    if not left:
        return None
    centre = best_of(candidates, outcomes)
    if centre is None or len(outcomes) % 2 == 0:
        return left[0]
    # The nearest by knobs, the first by prediction among them; knobs that it must change the fewest.
    return min(left, key=lambda c: sum(c.knobs[k] != centre.knobs[k] for k in c.knobs))
