"""Convolutions: dense, pointwise, grouped, depthwise, transposed, in one to three dimensions."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod
from random import Random

from benchmarks.cases import Case
from benchmarks.cliffs import Shape, Sizes, convolution
from benchmarks.hunting.draws import MOST_BYTES, MOST_FLOPS, Draw, size

LARGEST = {1: 16000, 2: 224, 3: 40}  # image, by rank


def _dense(rng: Random) -> Case | None:
    rank = rng.choices((1, 2, 3), (2, 7, 1))[0]
    shape = Shape(size(rng, 1, 600), size(rng, 1, 600), _image(rng, rank), _kernel(rng, rank), _stride(rng), (1,))
    if rng.random() < 0.25:
        shape = replace(shape, stride=(1,), dilation=(rng.choice((2, 2, 3, 4, 6)),))
    return _case(rng, shape)


def _first(rng: Random) -> Case | None:
    """The first layer of a network: few channels, large images."""
    rank = rng.choices((1, 2), (1, 4))[0]
    side = size(rng, 48, 640 if rank == 2 else 48000)
    image = (side,) if rank == 1 else (side, side if rng.random() < 0.5 else size(rng, 48, 640))
    k = rng.choice((2, 3, 3, 3, 4, 5, 7, 8, 11, 16))
    stride = rng.choice((1, 2, 2, k))
    return _case(rng, Shape(rng.choice((1, 1, 2, 3, 3, 3, 4, 6)), size(rng, 4, 128), image, (k,), (stride,)))


def _pointwise(rng: Random) -> Case | None:
    rank = rng.choices((1, 2), (1, 4))[0]
    return _case(
        rng, Shape(size(rng, 1, 1024), size(rng, 1, 1024), _image(rng, rank), (1,), (rng.choice((1, 1, 1, 2)),))
    )


def _depthwise(rng: Random) -> Case | None:
    rank = rng.choices((1, 2, 3), (2, 7, 1))[0]
    channels = size(rng, 2, 1000)
    return _case(rng, Shape(channels, channels, _image(rng, rank), _kernel(rng, rank, 2), _stride(rng),
                            (rng.choice((1, 1, 1, 2)),), groups=channels))  # fmt: skip


def _grouped(rng: Random) -> Case | None:
    groups, rank = rng.choice((2, 2, 3, 4, 5, 8, 16, 17, 32)), rng.choices((1, 2), (1, 4))[0]
    channels, filters = groups * size(rng, 1, 64), groups * size(rng, 1, 64)
    return _case(rng, Shape(channels, filters, _image(rng, rank), _kernel(rng, rank), _stride(rng), groups=groups))


def _transposed(rng: Random) -> Case | None:
    rank = rng.choices((1, 2, 3), (1, 4, 1))[0]
    stride = rng.choice((1, 2, 2, 2, 3, 4))
    k = rng.choice((2, 3, 4, 5))
    image = tuple(max(1, n // 2) for n in _image(rng, rank))
    shape = Shape(size(rng, 1, 256), size(rng, 1, 256), image, (max(k, stride),), (stride,), pad=(rng.choice((0, 1)),),
                  transposed=True)  # fmt: skip
    if rng.random() < 0.2:
        groups = gcd(shape.channels, shape.filters)
        shape = replace(shape, groups=groups)
    return _case(rng, shape)


def _image(rng: Random, rank: int) -> Sizes:
    """Square half of the time."""
    side = size(rng, 1 if rng.random() < 0.1 else 5, LARGEST[rank])
    if rank == 1 or rng.random() < 0.5:
        return (side,) * rank
    return (side, *(size(rng, 1, LARGEST[rank]) for _ in range(rank - 1)))


def _kernel(rng: Random, rank: int, least: int = 1) -> Sizes:
    """Mostly of one side."""
    sides = [k for k in (1, 1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 7, 9) if k >= least]
    if rank == 1:
        return (rng.choice((*sides, 10, 16, 31)),)
    side = rng.choice(sides)
    return (side,) * rank if rng.random() < 0.8 else tuple(rng.choice(sides) for _ in range(rank))


def _stride(rng: Random) -> Sizes:
    return (rng.choices((1, 2, 3, 4), (10, 6, 1, 1))[0],)


def _case(rng: Random, shape: Shape) -> Case | None:
    """With a batch and sometimes without padding; None where it is empty or too large."""
    shape = replace(shape, batch=rng.choices((1, 2, 3, 4), (6, 1, 1, 1))[0])
    if shape.pad is None and rng.random() < 0.2:
        shape = replace(shape, pad=(0,))
    if min(shape.out) < 1:
        return None
    kernel = prod(shape.of_rank(shape.kernel))
    taps = prod(shape.image if shape.transposed else shape.out) * kernel
    weights = shape.channels * shape.filters // shape.groups * kernel
    flops = 2.0 * shape.batch * taps * shape.channels * shape.filters / shape.groups
    values = weights + shape.batch * (shape.channels * prod(shape.image) + shape.filters * prod(shape.out))
    return convolution(shape) if flops <= MOST_FLOPS and 4 * values <= MOST_BYTES else None


KINDS: dict[str, Draw] = {
    "conv": _dense, "first": _first, "pointwise": _pointwise, "depthwise": _depthwise, "grouped": _grouped,
    "transposed": _transposed,
}  # fmt: skip
