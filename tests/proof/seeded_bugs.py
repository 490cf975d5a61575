"""Judging mutants of generated loops by running them and by the proof.

Each mutant that `mutant_oracle` shows to be wrong must fail the proof. Mutants that no run shows
to be wrong are counted apart: some are equivalent, others are wrong for sizes that were not run,
and vector loops are held to a rule that is stricter than what one vectoriser makes of them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from loop_mutants import Mutant
from mutant_oracle import Case, IllFormed, fault
from proof_cases import by_hand, of_library, of_polybench, of_random_programs, sampled

from examples import polybench
from polyc.emit.proof.proven import prove
from polyc.emit.proof.read_back import WrongLoops


@dataclass
class Tally:
    """Counts by kind of change; `missed` are wrong mutants that the proof accepts."""

    caught: Counter[str] = field(default_factory=Counter)
    missed: list[tuple[Case, Mutant, str]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    ill_formed: int = 0

    @property
    def wrong(self) -> int:
        """How many mutants were shown to be wrong."""
        return self.caught.total() + len(self.missed)

    def __str__(self) -> str:
        kinds = sorted({*self.caught, *self.refused, *self.accepted, *(m.kind for _, m, _ in self.missed)})
        missed = Counter(m.kind for _, m, _ in self.missed)
        lines = [f"{'':20}  wrong: caught  missed   not shown wrong: refused  accepted"]
        for k in (*kinds, "all"):
            parts = (self.caught, missed, self.refused, self.accepted)
            a, b, c, d = (p.total() if k == "all" else p[k] for p in parts)
            lines.append(f"{k:20}  {a:13}  {b:6}   {c:24}  {d:8}")
        lines.append(f"and {self.ill_formed} that are no loop IR")
        return "\n".join(lines)


def judge(case: Case, mutant: Mutant, tally: Tally) -> None:
    """Run and prove one mutant."""
    marks = any(k in mutant.kind for k in ("vector mark", "loops swapped", "buffer hoisted"))
    try:
        why = fault(case, mutant.fn, marks)
    except IllFormed:
        tally.ill_formed += 1
        return
    try:
        prove(case.scop, mutant.fn)
    except WrongLoops:
        (tally.refused if why is None else tally.caught)[mutant.kind] += 1
    else:
        if why is None:
            tally.accepted[mutant.kind] += 1
        else:
            tally.missed.append((case, mutant, why))


def judged(cases: Iterable[Case], mutants_each: int, wanted: int, seed: int = 0, changes: int = 1) -> Tally:
    """Judge mutants of the cases in turn until `wanted` are wrong."""
    tally = Tally()
    for case in cases:
        prove(case.scop, case.fn)
        for mutant in sampled(case, mutants_each, seed, changes):
            judge(case, mutant, tally)
            if tally.wrong >= wanted:
                return tally
    return tally


def all_cases(seed: int = 0) -> Iterator[Case]:
    """By hand first, then the others in turn."""
    yield from by_hand()
    programs = of_random_programs(range(seed, seed + 10_000))
    sources = (of_library(), of_polybench(list(polybench.MODULES), seed), programs)
    for row in itertools.zip_longest(*sources):
        yield from (c for c in row if c is not None)
