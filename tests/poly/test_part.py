"""Parts of Scops: the elements that the whole program computes, and sums that add up to its sums."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import back_ends
import numpy as np
import pytest
from random_programs import Wanted, generate
from small_operators import layer_norm, product, softmax

from polyc.frontend_dsl.library.gradients import (
    make_average_pool_gradient,
    make_conv_data_gradient,
    make_conv_weight_gradient,
    make_max_pool_gradient,
)
from polyc.poly.adjoint.joint import adjoint
from polyc.poly.binding import evaluate
from polyc.poly.dtypes import f32
from polyc.poly.errors import ScopError
from polyc.poly.json_io import dumps
from polyc.poly.rewriting.part import Box, chosen, is_shared_out, part_of, sums_of, touched
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.verify import verify

WORKS_IN_ITS_RESULT = {("softmax", 1), ("layer norm", 1)}
"""Axes whose elements need others of the result on the way, which a part has no place for."""
Arrays = Mapping[str, np.ndarray]
IMAGES = (f32, 6, 2, (2, 3), (7, 6), (4, 3), (3, 3), (2, 2), (1, 1), (1, 1))
POOL = (f32, 6, (7, 6), (4, 3), (3, 3), (2, 2), (1, 1), (1, 1))


def _numbers(scop: Scop, sizes: Mapping[str, int]) -> Scop:
    return specialise(scop, {n: v for n, v in sizes.items() if n in scop.params})


def _adjoint(operator: Any, **sizes: int) -> Scop:
    scop = _numbers(operator.scop(), sizes)
    return adjoint(scop, [a for a in scop.args if scop.arrays[a].dtype.is_float]).scop


SCOPS: Mapping[str, Callable[[], Scop]] = {
    "weights": lambda: make_conv_weight_gradient(*IMAGES).scop(),
    "images": lambda: make_conv_data_gradient(*IMAGES).scop(),
    "largest": lambda: make_max_pool_gradient(*POOL).scop(),
    "means": lambda: make_average_pool_gradient(*POOL).scop(),
    "product": lambda: product(6, 5, 4).scop(),
    "softmax": lambda: _adjoint(softmax, M=6, N=5),
    "layer norm": lambda: _adjoint(layer_norm, M=6, N=5),
}


def shape_of(scop: Scop, name: str) -> tuple[int, ...]:
    return tuple(int(evaluate(e, {})) for e in scop.arrays[name].shape)


def whole(scop: Scop, name: str) -> list[tuple[int, int]]:
    return [(0, n) for n in shape_of(scop, name)]


def data(scop: Scop, seed: int = 0) -> dict[str, np.ndarray]:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return {n: rng.integers(-3, 4, shape_of(scop, n)).astype(scop.arrays[n].dtype.np) for n in scop.args}


def run(scop: Scop, given: Arrays) -> dict[str, np.ndarray]:
    """Results, and arguments after their update."""
    verify(scop)
    found = back_ends.interpret(scop, scop.tree, [given[n] for n in scop.args])
    return dict(zip(back_ends.updated(scop), found, strict=True))


def cut(value: np.ndarray, box: Box) -> np.ndarray:
    return np.ascontiguousarray(value[tuple(slice(a, b) for a, b in box)]).reshape([b - a for a, b in box])


def part_run(scop: Scop, boxes: Mapping[str, Box], given: Arrays, sums: Sequence[str] = ()) -> dict[str, np.ndarray]:
    small = part_of(scop, chosen(scop, boxes, sums))
    return run(small, {n: cut(v, boxes[n]) if n in boxes else v for n, v in given.items()})


def read_by(scop: Scop, result: str, box: Box) -> dict[str, Box]:
    """The boxes of the arguments that a part of a result reads; of those that it does not read, their first element."""
    none = {r: [(0, 0)] * len(shape_of(scop, r)) for r in scop.results}
    runs = chosen(scop, {**none, result: box}).runs
    return {a: touched(scop, a, runs) or [(0, 1)] * len(shape_of(scop, a)) for a in scop.args}


def halves(n: int) -> list[tuple[int, int]]:
    return [(0, n // 2), (n // 2, n)]


@pytest.mark.parametrize("name", SCOPS)
def test_each_part_is_that_of_the_whole(name: str) -> None:
    """Every axis of every result in two parts, from what these read and no more; other results are not asked for."""
    scop = SCOPS[name]()
    given = data(scop)
    wanted = run(scop, given)
    made = 0
    for result in scop.results:
        for axis, n in enumerate(shape_of(scop, result)):
            for part in halves(n):
                box = whole(scop, result)
                box[axis] = part
                if part[0] == part[1]:
                    continue
                none = {r: [(0, 0)] * len(shape_of(scop, r)) for r in scop.results}
                if (name, axis) in WORKS_IN_ITS_RESULT and result == "grad_X":
                    with pytest.raises(ScopError, match="may write 'grad_X' outside the part"):
                        read_by(scop, result, box)
                    continue
                found = part_run(scop, {**none, **read_by(scop, result, box), result: box}, given)
                np.testing.assert_allclose(found[result], cut(wanted[result], box), rtol=1e-6)
                made += 1
    assert made


@pytest.mark.parametrize(
    ("name", "result", "axes"),
    [("weights", "D", {"X": 0, "G": 0}), ("weights", "D", {"X": 3, "G": 3}), ("product", "C", {"A": 1, "B": 0})],
)
def test_partial_sums_add_up(name: str, result: str, axes: Mapping[str, int]) -> None:
    scop = SCOPS[name]()
    assert sums_of(scop) == {result: "+"}
    boxes = []
    for k in range(2):
        own = {}
        for argument, axis in axes.items():
            box = whole(scop, argument)
            box[axis] = halves(box[axis][1])[k]
            own[argument] = box
        boxes.append(own)
    given = data(scop)
    if axes.get("X") == 3:  # rows of images: windows reach over, so some update is in no part, and that is seen
        parts = [chosen(scop, b, [result]) for b in boxes]
        assert not is_shared_out(scop, parts, [result])
        return
    parts = [chosen(scop, b, [result]) for b in boxes]
    assert is_shared_out(scop, parts, [result])
    assert not is_shared_out(scop, parts[:1], [result]) and not is_shared_out(scop, [*parts, parts[0]], [result])
    total = sum(part_run(scop, b, given, [result])[result] for b in boxes)
    np.testing.assert_array_equal(total, run(scop, given)[result])


@pytest.mark.parametrize("name", ["weights", "images", "largest", "means"])
def test_equal_parts_are_the_same_program(name: str) -> None:
    """All micro-batches may run the program of the first."""
    scop = SCOPS[name]()
    batched = [n for n in (*scop.args, *scop.results) if shape_of(scop, n)[0] == 6]
    sums = [r for r in scop.results if r not in batched]
    texts = {
        dumps(part_of(scop, chosen(scop, {n: [(k, k + 2), *whole(scop, n)[1:]] for n in batched}, sums)))
        for k in (0, 2, 4)
    }
    assert len(texts) == 1


def test_what_is_missing_is_said() -> None:
    scop = SCOPS["softmax"]()
    result, argument = scop.results[0], scop.args[0]
    box = [whole(scop, argument)[0], (0, 3)]
    with pytest.raises(ScopError, match="needs elements that are not in the part"):
        chosen(scop, {argument: box, result: box})
    with pytest.raises(ScopError, match=f"'{result}' is no plain sum"):
        chosen(scop, {}, [result])


def random_part(seed: int) -> tuple[Scop, dict[str, np.ndarray], str, dict[str, Box]] | None:
    """A program, its data, and a random box of one result with the boxes that this reads; None: it has no such part."""
    program = generate(7000 + seed, Wanted(sizes=(3, 4, 5)))
    scop = _numbers(program.operator(reassociate=False).scop(), program.sizes)
    given = dict(zip(scop.args, map(np.asarray, program.arguments()), strict=True))
    r = random.Random(seed)
    made = [n for n, a in scop.arrays.items() if a.kind in ("out", "inout") and a.shape]
    if not made or scop.params:
        return None
    result = r.choice(made)
    box = []
    for n in shape_of(scop, result):
        begin = r.randrange(n)
        box.append((begin, r.randint(begin + 1, n)))
    others = {x: [(0, 0)] * len(shape_of(scop, x)) for x in scop.results if x != result}
    try:
        runs = chosen(scop, {**others, result: box}).runs
        reads = {a: touched(scop, a, runs) for a in scop.args if scop.arrays[a].kind == "in"}
        boxes = {**others, **{a: b for a, b in reads.items() if b is not None}, result: box}
        chosen(scop, boxes)
    except ScopError:
        return None
    return scop, given, result, boxes


@pytest.mark.parametrize("seeds", [range(k, k + 20) for k in range(0, 120, 20)], ids=lambda s: s.start)
def test_random_programs(seeds: range) -> None:
    """Random boxes of random results: the same bits as in the whole program."""
    made = smaller = 0
    for seed in seeds:
        found = random_part(seed)
        if found is None:
            continue
        scop, given, result, boxes = found
        small = part_of(scop, chosen(scop, boxes))
        wanted = run(scop, given)[result]
        got = run(small, {n: cut(v, boxes[n]) if n in boxes else v for n, v in given.items()})[result]
        np.testing.assert_array_equal(got, cut(wanted, boxes[result]), str(seed))
        made += 1
        smaller += sum(cut(v, boxes[n]).size < v.size for n, v in given.items() if n in boxes)
    assert made >= 5 and smaller
