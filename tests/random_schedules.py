"""Random sequences of transformations; those that `Schedule` refuses are skipped."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from poly.errors import ScheduleError
from poly.quota import QuotaExceeded, quota
from scheduler.schedule import Schedule

OPERATIONS = 1_000_000


def random_schedule(start: Schedule, seed: int, tries: int = 6) -> Schedule:
    """`start` after up to `tries` random legal transformations."""
    r = random.Random(seed)
    schedule = replace(start, terse=True)  # hints cost several checks per refusal
    for _ in range(tries):
        if not schedule.loops:
            break
        step = r.choice(_STEPS)
        try:
            with quota(OPERATIONS):
                schedule = step(schedule, r)
        except (ScheduleError, QuotaExceeded):  # illegal here, of no sense here, or too large for isl
            continue
    return schedule


def _loop(s: Schedule, r: random.Random) -> str:
    return r.choice(s.loops)


def _pair(s: Schedule, r: random.Random) -> tuple[str, str]:
    """Two loops that are often neighbours."""
    k = r.randrange(len(s.loops))
    other = min(k + 1, len(s.loops) - 1) if r.random() < 0.7 else r.randrange(len(s.loops))
    return s.loops[k], s.loops[other]


def _run(s: Schedule, r: random.Random) -> list[str]:
    """One to three consecutive loops."""
    k = r.randrange(len(s.loops))
    return list(s.loops[k : k + r.randint(1, 3)])


def _permuted(s: Schedule, r: random.Random) -> Schedule:
    names = _run(s, r)
    r.shuffle(names)
    return s.permute(*names)


def _tiled(s: Schedule, r: random.Random) -> Schedule:
    names = _run(s, r)
    return s.tile(names, [r.choice((1, 2, 3, 4, 8)) for _ in names])


def _reordered(s: Schedule, r: random.Random) -> Schedule:
    names = list(s.scop.statements)
    return s.reorder_statements(r.sample(names, min(len(names), 2)))


def _contracted(s: Schedule, r: random.Random) -> Schedule:
    local = [a.name for a in s.scop.arrays.values() if a.kind == "local"]
    return s.contract(r.choice(local)) if local else s


def _promoted(s: Schedule, r: random.Random) -> Schedule:
    return s.promote(r.choice(list(s.scop.arrays)), _loop(s, r), r.choice(("local", "heap", "register")))


_STEPS: tuple[Callable[[Schedule, random.Random], Schedule], ...] = (
    lambda s, r: s.split(_loop(s, r), r.choice((1, 2, 3, 4, 8))),
    lambda s, r: s.strip_mine(_loop(s, r), r.choice((2, 3, 4))),
    _tiled,
    _tiled,
    lambda s, r: s.interchange(*_pair(s, r)),
    lambda s, r: s.interchange(*_pair(s, r)),
    _permuted,
    lambda s, r: s.reverse(_loop(s, r)),
    lambda s, r: s.skew(*_pair(s, r), r.choice((-2, -1, 1, 1, 2))),
    lambda s, r: s.shift(_loop(s, r), r.choice((-2, -1, 1, 2)), r.choice((None, [r.choice(list(s.scop.statements))]))),
    _reordered,
    lambda s, r: s.fuse(*_pair(s, r), shift=r.choice((0, 0, 1, "auto"))),
    lambda s, r: s.distribute(_loop(s, r)),
    lambda s, r: s.parallel(_loop(s, r)),
    lambda s, r: s.vectorize(_loop(s, r), r.choice((2, 4, 8, None))),
    lambda s, r: s.vectorize(_loop(s, r), r.choice((2, 4, 8, None))),
    lambda s, r: s.unroll(_loop(s, r), r.choice((2, 3, 4, None))),
    _contracted,
    _promoted,
)
