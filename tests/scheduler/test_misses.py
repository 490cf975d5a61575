"""Misses of a simulated cache (LRU, of a given size) against the model, and by which factor tiles lower both."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Iterable

import numpy as np
import pytest

from examples.matmul import matmul
from polyc import dims, empty, f32, grid, op
from polyc.emit import targets
from polyc.emit.interpreter import interp
from polyc.emit.lowering.lower import build_loops
from polyc.poly.access import accesses
from polyc.poly.binding import evaluate
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import Expr
from polyc.poly.rewriting.specialise import specialise
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

N = dims("N")
WITHIN = 0.25
Line = tuple[str, tuple[int, ...]]


@op
def transposed(X: f32[N, N]) -> f32[N, N]:
    Y = empty((N, N), f32)
    for i, j in grid(N, N):
        Y[i, j] = X[j, i]
    return Y


class Lru:
    """A fully associative cache of some lines; the least recently used one is replaced."""

    def __init__(self, lines: int) -> None:
        self.room = lines
        self.lines: OrderedDict[Line, None] = OrderedDict()
        self.misses: Counter[str] = Counter()

    def touch(self, line: Line) -> None:
        if line in self.lines:
            self.lines.move_to_end(line)
            return
        self.misses[line[0]] += 1
        self.lines[line] = None
        if len(self.lines) > self.room:
            self.lines.popitem(last=False)


def touched_lines(s: Schedule, line: int) -> list[Line]:
    """The lines that the loops of a schedule touch, run by the interpreter, in their order."""
    scop = s.scop
    touched: dict[str, list[tuple[str, tuple[Expr, ...], int]]] = {}
    for a in accesses(scop):
        many = max(1, line // scop.arrays[a.array].dtype.bytes)
        touched.setdefault(a.stmt, []).append((a.array, a.load.index, many))
    found: list[Line] = []

    def see(name: str, point: tuple[int, ...]) -> None:
        values = dict(zip(scop.statements[name].iters, point, strict=False))
        for array, index, many in touched[name]:
            at = [evaluate(e, values) for e in index]
            found.append((array, (*at[:-1], at[-1] // many)))

    arrays = {
        a.name: np.zeros([evaluate(e, {}) for e in a.shape], a.dtype.np)
        for a in scop.arrays.values() if a.kind != "local"
    }  # fmt: skip
    interp.run(build_loops(scop, s.tree, "f"), arrays, {}, see)
    return found


def lru_misses(touched: Iterable[Line], lines: int) -> dict[str, int]:
    """What a simulated cache of so many lines fetches."""
    cache = Lru(lines)
    for line in touched:
        cache.touch(line)
    return dict(cache.misses)


def counted_misses(s: Schedule, capacity: int, line: int) -> dict[str, int]:
    """The loops of a schedule through a simulated cache."""
    return lru_misses(touched_lines(s, line), capacity // line)


def product(m: int, n: int, k: int) -> Schedule:
    return Schedule.start(specialise(matmul.scop(), {"M": m, "N": n, "K": k}))


def both(s: Schedule, capacity: int, line: int) -> tuple[int, int]:
    """Predicted and counted misses of all arrays."""
    return sum(s.misses(capacity, line).values()), sum(counted_misses(s, capacity, line).values())


def check_factor(plain: Schedule, tiled: Schedule, capacity: int, line: int) -> float:
    """By what the misses fall: as predicted, within `WITHIN`."""
    (p, q), (a, b) = both(plain, capacity, line), both(tiled, capacity, line)
    predicted, counted = p / a, q / b
    assert counted == pytest.approx(predicted, rel=WITHIN), f"predicted {p} / {a}, counted {q} / {b}"
    return counted


CASES = [  # sizes, tile, bytes of a line; the cache holds two such tiles of the three matrices
    ((24, 24, 24), 6, 4),
    ((24, 40, 28), 8, 32),
    ((37, 29, 31), 8, 16),
    ((21, 27, 23), 4, 8),
]


@pytest.mark.parametrize("sizes, tile, line", CASES)
def test_tiles_of_a_product_lower_the_misses_as_predicted(sizes: tuple[int, int, int], tile: int, line: int) -> None:
    plain = product(*sizes)
    tiled = plain.tile(["i", "j", "k"], [tile] * 3)
    assert check_factor(plain, tiled, 2 * 3 * 4 * tile * tile, line) > 1.5


def test_the_register_tiles_of_the_automatic_schedule_lower_them_as_predicted() -> None:
    plain = product(36, 48, 24)
    assert check_factor(plain, automatic(plain.scop, targets.get("x86-64-v3")), 4096, 16) > 3.0


def test_blocks_of_a_transposition_lower_the_misses_as_predicted() -> None:
    plain = Schedule.start(specialise(transposed.scop(), {"N": 48}))
    assert check_factor(plain, plain.tile(["i", "j"], [8, 8]), 1024, 32) > 3.0


@pytest.mark.parametrize("line", [4, 16])
def test_a_cache_that_holds_everything_fetches_each_line_once(line: int) -> None:
    s = product(9, 12, 7).tile(["i", "j"], [4, 3])
    assert s.misses(1 << 20, line) == counted_misses(s, 1 << 20, line)


def test_a_cache_of_one_line_keeps_what_is_used_twice_in_a_row() -> None:
    s = Schedule.start(specialise(transposed.scop(), {"N": 16}))
    assert s.misses(4, 4) == counted_misses(s, 4, 4) == {"X": 256, "Y": 256}


def test_free_sizes_have_no_misses() -> None:
    with pytest.raises(ScheduleError, match="not fixed numbers"):
        matmul.scop().schedule().misses(1024, M=8)


@pytest.mark.long
def test_at_random() -> None:
    """Also where the working set nearly fills the cache, where a little decides: most within `WITHIN`, none far off."""
    rng = random.Random(20261121)
    apart = []
    for _ in range(40):
        plain = product(*(rng.randint(16, 40) for _ in range(3)))
        tile = [rng.choice([4, 8, 12, 16]) for _ in range(3)]
        tiled = plain.tile(["i", "j", "k"], tile)
        cells = tile[0] * tile[1] + tile[0] * tile[2] + tile[1] * tile[2]
        capacity, line = int(4 * cells * rng.choice([1.1, 1.5, 2.0, 3.0])), rng.choice([4, 16, 32])
        (p, q), (a, b) = both(plain, capacity, line), both(tiled, capacity, line)
        ratio = (p / a) / (q / b)
        apart.append(max(ratio, 1 / ratio))
    assert sum(x <= 1 + WITHIN for x in apart) >= 0.8 * len(apart) and max(apart) < 2.0, sorted(apart)
