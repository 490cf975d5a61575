"""Random sequences of transformations; those that `Schedule` refuses are skipped.

`PROPOSALS` has random arguments for every transformation there is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from polyc.poly.errors import ScheduleError
from polyc.poly.expr import loads
from polyc.poly.json_io import dump_tree
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.text import print_expr
from polyc.poly.tree import GpuAxis
from polyc.scheduler.schedule import Schedule

OPERATIONS = 1_000_000
Arguments = dict[str, Any]


def random_schedule(start: Schedule, seed: int, tries: int = 6) -> Schedule:
    """`start` after up to `tries` random legal transformations."""
    r = random.Random(seed)
    schedule = replace(start, terse=True)  # hints cost several checks per refusal
    for _ in range(tries):
        if not schedule.loops:
            break
        name = r.choices(list(PROPOSALS), [WEIGHTS.get(n, 1) for n in PROPOSALS])[0]
        try:
            with quota(OPERATIONS):
                schedule = apply(schedule, name, PROPOSALS[name](schedule, r))
        except (ScheduleError, QuotaExceeded):  # illegal here, of no sense here, or too large for isl
            continue
    return schedule


def apply(schedule: Schedule, name: str, arguments: Arguments) -> Schedule:
    """One transformation by name."""
    done: Schedule = getattr(schedule, name)(**arguments)
    return done


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


def _shuffled(names: list[str], r: random.Random) -> list[str]:
    return r.sample(names, len(names))


def _tile(s: Schedule, r: random.Random) -> Arguments:
    names = _run(s, r)
    return {"loops": names, "sizes": [r.choice((1, 2, 3, 4, 8)) for _ in names]}


def _pair_of(s: Schedule, r: random.Random) -> Arguments:
    a, b = _pair(s, r)
    return {"a": a, "b": b}


def _skew(s: Schedule, r: random.Random) -> Arguments:
    loop, by = _shuffled(list(_pair(s, r)), r)
    return {"loop": loop, "by": by, "factor": r.choice((-2, -1, 1, 1, 2))}


def _statement(s: Schedule, r: random.Random) -> str:
    return r.choice(list(s.scop.statements))


def _read_first(s: Schedule, r: random.Random) -> Arguments:
    name = _statement(s, r)
    found = sorted({print_expr(load) for load in loads(s.scop.statements[name].value)})
    return {"statement": name, "read": r.choice(found or ["nothing"])}


def _order(s: Schedule, r: random.Random) -> Arguments:
    names = list(s.scop.statements) if r.random() < 0.7 else list(s.loops)
    return {"order": r.sample(names, min(len(names), 2))}


def _at(s: Schedule, r: random.Random) -> int | str:
    if s.scop.params and r.random() < 0.6:
        size = r.choice(s.scop.params)
        return r.choice((f"{size} // 2", f"{size} - 1", f"{size} - 2", f"min({size}, 3)"))
    return r.randint(-1, 4)


def _where(s: Schedule, r: random.Random) -> str:
    """A condition on one or two sizes."""
    a, b = (r.choice(s.scop.params or ("1",)) for _ in range(2))
    one = r.choice((f"{a} <= {r.randint(1, 9)}", f"{a} % {r.choice((2, 4))} == 0", f"{a} < {b} + 1", f"{a} != {b}"))
    return one if r.random() < 0.7 else f"{one} {r.choice(('and', 'or'))} not {b} > {r.randint(1, 9)}"


def _promote(s: Schedule, r: random.Random) -> Arguments:
    array = r.choice(list(s.scop.arrays))
    out: Arguments = {"array": array, "at": _loop(s, r), "space": r.choice(("local", "heap", "register", "shared"))}
    rank = len(s.scop.arrays[array].shape)
    if rank and r.random() < 0.3:
        out["layout"] = _shuffled_dims(rank, r)
    for side in ("copy_in", "copy_out"):
        if r.random() < 0.25:
            out[side] = r.random() < 0.3
    return out


def _shuffled_dims(rank: int, r: random.Random) -> list[int] | list[list[int]]:
    dims = r.sample(range(rank), rank)
    if r.random() < 0.5:
        return dims
    d, block = r.choice(dims), r.choice((2, 4))
    return [[d, block, 0], *([k, 1, 0] for k in dims if k != d), [d, 1, block]]


def _unsplit(s: Schedule, r: random.Random) -> Arguments:
    """A loop over strips, where there is one."""
    return {"loop": r.choice([n for n in s.loops if n.endswith(".out")] or list(s.loops))}


def _relayout(s: Schedule, r: random.Random) -> dict[str, Any]:
    """A local array and its dimensions in any order."""
    array = _local(s, r)["array"]
    rank = len(s.scop.arrays[array].shape) if array in s.scop.arrays else 1
    return {"array": array, "layout": r.sample(range(rank), rank)}


def _local(s: Schedule, r: random.Random) -> Arguments:
    local = [a.name for a in s.scop.arrays.values() if a.kind == "local"] or list(s.scop.arrays)
    return {"array": r.choice(local)}


def _outline(s: Schedule, r: random.Random) -> Arguments:
    stmt = _statement(s, r)
    iters = s.scop.statements[stmt].iters
    at = r.choice([None, None, _loop(s, r)])
    return {"statement": stmt, "loops": r.sample(iters, r.randint(min(1, len(iters)), len(iters))), "at": at}


def _set_order(s: Schedule, r: random.Random) -> Arguments:
    """A tree that other transformations make, not all of them legal."""
    wild = replace(Schedule.start(s.scop), _deferred=True)
    for name in r.choices(("interchange", "reverse", "shift", "skew", "tile", "fuse", "distribute"), k=2):
        try:
            wild = apply(wild, name, PROPOSALS[name](wild, r))
        except ScheduleError:
            continue
    return {"tree": dump_tree(wild.tree)}


PROPOSALS: Mapping[str, Callable[[Schedule, random.Random], Arguments]] = {
    "split": lambda s, r: {"loop": _loop(s, r), "size": r.choice((1, 2, 3, 4, 8))},
    "strip_mine": lambda s, r: {"loop": _loop(s, r), "size": r.choice((2, 3, 4))},
    "unsplit": _unsplit,
    "tile": _tile,
    "unroll_and_jam": lambda s, r: {"loop": _loop(s, r), "factor": r.choice((2, 3, 4))},
    "index_split": lambda s, r: {"loop": _loop(s, r), "at": _at(s, r)},
    "peel": lambda s, r: {"loop": _loop(s, r), "first": r.randint(0, 2), "last": r.randint(0, 2)},
    "version": lambda s, r: {"loop": _loop(s, r), "where": _where(s, r)},
    "interchange": _pair_of,
    "permute": lambda s, r: {"loops": _shuffled(_run(s, r), r)},
    "reverse": lambda s, r: {"loop": _loop(s, r)},
    "skew": _skew,
    "shift": lambda s, r: {"loop": _loop(s, r), "amount": r.choice((-2, -1, 1, 2)),
                           "statements": r.choice((None, [_statement(s, r)]))},
    "reorder_statements": _order,
    "set_order": _set_order,
    "fuse": lambda s, r: {**_pair_of(s, r), "shift": r.choice((0, 0, 1, "auto"))},
    "distribute": lambda s, r: {"loop": _loop(s, r)},
    "parallel": lambda s, r: {"loop": _loop(s, r)},
    "vectorize": lambda s, r: {"loop": _loop(s, r), "lanes": r.choice((2, 4, 8, None))},
    "unroll": lambda s, r: {"loop": _loop(s, r), "factor": r.choice((2, 3, 4, None))},
    "bind": lambda s, r: {"loop": _loop(s, r), "axis": r.choice(get_args(GpuAxis))},
    "serial": lambda s, r: {"loop": _loop(s, r)},
    "promote": _promote,
    "contract": _local,
    "inline": _local,
    "outline": _outline,
    "split_sum": lambda s, r: {"statement": _statement(s, r)},
    "expand": lambda s, r: {**_local(s, r), "loop": _loop(s, r)},
    "coalesce": lambda s, r: {**_local(s, r), "into": r.choice(list(s.scop.arrays))},
    "split_statement": lambda s, r: {"statement": _statement(s, r), "loop": _loop(s, r)},
    "unite_statements": lambda s, r: {"first": _statement(s, r), "second": _statement(s, r)},
    "gather": lambda s, r: {"statement": _statement(s, r), "phases": r.random() < 0.3},
    "read_first": _read_first,
    "rfactor": lambda s, r: {"loop": _loop(s, r)},
    "eliminate": lambda s, r: {},
    "normalise": lambda s, r: {},
    "in_words": lambda s, r: {"statement": _statement(s, r), "numbers": r.choice((2, 4))},
    "relayout": _relayout,
    "recompute": lambda s, r: {**_local(s, r), "loop": _loop(s, r)},
}  # fmt: skip

WEIGHTS = {
    "tile": 3,
    "interchange": 2,
    "vectorize": 3,
    "inline": 2,
    "rfactor": 3,
    "promote": 2,
    "set_order": 0.3,
    "eliminate": 0,
    "recompute": 0,
    "normalise": 0,
    "in_words": 0,
    "unsplit": 0,
    "relayout": 0,  # what seeds draw stays as it was; `test_transformations_properties.py` proposes it by name
}
