"""Random functions over NumPy arrays: which steps they take follows from a seed and from shapes alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

Step = Callable[[Any, np.random.Generator], Any]


def _axis(x: Any, rng: np.random.Generator) -> Any:
    return None if not x.ndim or rng.random() < 0.2 else int(rng.integers(-x.ndim, x.ndim))


def _keep(rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


def _sliced(x: Any, rng: np.random.Generator) -> Any:
    index: list[Any] = []
    for n in x.shape:
        kind = rng.integers(5)
        start, step = int(rng.integers(0, n)), int(rng.integers(1, 3))
        index.append([slice(None), slice(start, None, step), slice(None, None, -1), slice(-n, n), start][kind])
    if rng.random() < 0.3:
        index.insert(int(rng.integers(len(index) + 1)), None)
    return x[tuple(index)]


def _reshaped(x: Any, rng: np.random.Generator) -> Any:
    if x.size % 2 == 0 and rng.random() < 0.7:
        return x.reshape(2, -1) if rng.random() < 0.5 else np.reshape(x, (x.size // 2, 2))
    return x.ravel()


def _taken(x: Any, rng: np.random.Generator) -> Any:
    if not x.ndim:
        return x
    axis = int(rng.integers(x.ndim))
    return np.take(x, rng.integers(-x.shape[axis], x.shape[axis], int(rng.integers(1, 4))), axis=axis)


def _product(x: Any, rng: np.random.Generator) -> Any:
    if x.ndim < 1:
        return x * x
    weight = rng.standard_normal((x.shape[-1], 3)).astype("f") / 2
    return [lambda: x @ weight, lambda: np.einsum("...i,io->...o", x, weight), lambda: np.dot(x, weight[:, 0])][
        rng.integers(3)
    ]()


def _own(x: Any, rng: np.random.Generator) -> Any:
    y = x * 0.5
    y += float(rng.random())
    y -= x
    return y


STEPS: tuple[Step, ...] = (
    lambda x, r: np.tanh(x), lambda x, r: np.exp(np.clip(x, -3, 2)), lambda x, r: np.sqrt(np.abs(x)),
    lambda x, r: np.sin(x) - np.cos(x), lambda x, r: -x, lambda x, r: np.square(x).clip(-9, 9),
    lambda x, r: np.log(np.abs(x) + 1), lambda x, r: 1 / (1 + np.exp(-x)), lambda x, r: x**2 % 3,
    lambda x, r: np.maximum(x, 0.25), lambda x, r: np.where(x > 0, x, x * 0.5), lambda x, r: np.floor(x) / 2,
    lambda x, r: x // 0.75, lambda x, r: np.remainder(x, -0.7), lambda x, r: np.fmod(x, 0.7), lambda x, r: np.rint(x),
    lambda x, r: np.sign(x) * 2, lambda x, r: np.trunc(x), lambda x, r: np.logaddexp(x, 0.5),
    lambda x, r: np.isfinite(x) & (x < 1) | ~(x <= 2), lambda x, r: (np.abs(x) > 1).astype("f"),
    lambda x, r: np.sum(x, axis=_axis(x, r), keepdims=_keep(r)), lambda x, r: x.mean(axis=_axis(x, r)),
    lambda x, r: x.max(axis=_axis(x, r), keepdims=_keep(r)), lambda x, r: np.min(x, axis=_axis(x, r)),
    lambda x, r: np.var(x, axis=_axis(x, r)), lambda x, r: x.std(), lambda x, r: np.any(x > 1, axis=_axis(x, r)),
    lambda x, r: np.all(x < 1, axis=_axis(x, r)), lambda x, r: np.argmax(x, axis=_axis(x, r)),
    lambda x, r: np.cumsum(x, axis=_axis(x, r)), lambda x, r: x.T, lambda x, r: np.flip(x, _axis(x, r)),
    lambda x, r: np.concatenate([x, x * 2], axis=-1) if x.ndim else x, lambda x, r: np.stack([x, x + 1], axis=-1),
    lambda x, r: np.repeat(x, 2, axis=_axis(x, r)), lambda x, r: np.tile(x, 2), lambda x, r: np.expand_dims(x, 0),
    lambda x, r: np.squeeze(x), lambda x, r: np.broadcast_to(x, (2, *x.shape)),
    lambda x, r: x.swapaxes(0, -1) if x.ndim else x,
    lambda x, r: np.pad(x, 1, mode="constant", constant_values=2) if x.ndim else x,
    lambda x, r: np.tril(x, 1) if x.ndim == 2 else x, lambda x, r: x.astype("d") * 1.5,
    lambda x, r: (x * 4).astype("i4") // 3, lambda x, r: (x * 4).astype("i8") % 3, lambda x, r: x.astype("i4").sum(),
    lambda x, r: np.split(x, 2, axis=0)[1] if x.ndim and x.shape[0] % 2 == 0 else x, _sliced, _reshaped, _taken,
    _product, _own,
)  # fmt: skip


def function(seed: int) -> Callable[..., Any]:
    """A function of two arrays that gives one or several."""

    def made(x: Any, y: Any) -> Any:
        rng = np.random.default_rng(seed)
        pool = [x, y]
        for _ in range(int(rng.integers(3, 9))):
            new = STEPS[rng.integers(len(STEPS))](_floats(pool[rng.integers(len(pool))]), rng)
            if new.size > 4000 or new.ndim > 4:
                continue
            other = pool[rng.integers(len(pool))]
            if new.shape == other.shape and rng.random() < 0.5:
                new = new + other
            pool.append(new)
        return tuple(pool[2:]) or x * 1

    return made


def _floats(x: Any) -> Any:
    """Steps are of floats; results of other types are made such half of the time by what NumPy does with them."""
    return x if x.dtype.kind == "f" else x * np.float32(0.75)
