"""The twelve operators: polyc's, its arguments, and the same in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.gradients.programs import make_attention, make_batch_norm, make_heat, make_lstm_cell
from polyc.frontend_dsl.library import convolution, elementwise, matrix, normalization, pooling, reduction, scalar
from polyc.poly.dtypes import f32
from polyc.poly.records import dataclass

Arrays = tuple[np.ndarray[Any, Any], ...]
ONE, TWO, NONE = (1, 1), (2, 2), (0, 0)
EPSILON = 1e-5


@dataclass(frozen=True)
class Subject:
    """An operator: what makes it, the shapes of its arguments (f32), and the function of tensors that is the same."""

    make: Callable[[], Any]
    shapes: tuple[tuple[int, ...], ...]
    torch: Callable[..., Any]

    def arguments(self, seed: int = 0) -> Arrays:
        """Random arguments, scaled so that results stay near one."""
        rng = np.random.default_rng(seed)
        return tuple(rng.standard_normal(shape).astype("f") / max(shape[-1], 1) ** 0.25 for shape in self.shapes)


def _functional() -> Any:
    import torch

    return torch.nn.functional


def _attention(q: Any, k: Any, v: Any) -> Any:
    return _functional().scaled_dot_product_attention(q, k, v)


def _heat(steps: int) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        import torch

        kernel = torch.zeros(1, 1, 3, 3, 3)
        kernel[0, 0, 1, 1, 1] = 0.25
        for at in ((0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2)):
            kernel[0, 0][at] = 0.125
        for _ in range(2 * steps):
            inner = torch.nn.functional.conv3d(x[None, None], kernel)[0, 0]
            x = torch.nn.functional.pad(inner, (1,) * 6) + x * _border(x)
        return x

    return run


def _border(x: Any) -> Any:
    import torch

    mask = torch.ones_like(x)
    mask[1:-1, 1:-1, 1:-1] = 0.0
    return mask


def _lstm(x: Any, h: Any, c: Any, w: Any, r: Any, b: Any) -> Any:
    import torch

    return torch._VF.lstm_cell(x, (h, c), w, r, b, torch.zeros_like(b))  # type: ignore[attr-defined]


SUBJECTS: Mapping[str, Subject] = {
    "matrix product": Subject(
        lambda: matrix.make_matmul(f32, 384, 384, 384), ((384, 384), (384, 384)), lambda a, b: a @ b
    ),
    "convolution 3x3": Subject(
        lambda: convolution.make_conv2d(f32, 1, (64, 64), (56, 56), (3, 3), ONE, ONE, ONE, ONE, False),
        ((1, 64, 56, 56), (64, 64, 3, 3)),
        lambda x, w: _functional().conv2d(x, w, padding=1),
    ),
    "depthwise 3x3": Subject(
        lambda: convolution.make_depthwise(f32, 1, 64, (56, 56), (3, 3), ONE, ONE, ONE, ONE, False),
        ((1, 64, 56, 56), (64, 3, 3)),
        lambda x, w: _functional().conv2d(x, w[:, None], padding=1, groups=64),
    ),
    "softmax": Subject(
        lambda: normalization.make_softmax_rows(f32, (512,), 512), ((512, 512),), lambda x: x.softmax(-1)
    ),
    "layer norm": Subject(
        lambda: normalization.make_layer_norm(f32, 512, 512, EPSILON, True),
        ((512, 512), (512,), (512,)),
        lambda x, s, b: _functional().layer_norm(x, (512,), s, b, EPSILON),
    ),
    "attention": Subject(lambda: make_attention(8, 128, 64), ((8, 128, 64),) * 3, _attention),
    "GELU": Subject(
        lambda: elementwise.make_unary(scalar.gelu, f32, f32, (512, 512)),
        ((512, 512),),
        lambda x: _functional().gelu(x),
    ),
    "max-pool 3x3/2": Subject(
        lambda: pooling.make_max_pool(f32, 64, (56, 56), (28, 28), (3, 3), TWO, ONE, ONE),
        ((64, 56, 56),),
        lambda x: _functional().max_pool2d(x[None], 3, 2, 1)[0],
    ),
    "heat 3-D, 8 steps": Subject(lambda: make_heat(40, 4), ((40, 40, 40),), _heat(4)),
    "LSTM cell": Subject(
        lambda: make_lstm_cell(32, 128, 128),
        ((32, 128), (32, 128), (32, 128), (512, 128), (512, 128), (512,)),
        _lstm,
    ),
    "batch norm, training": Subject(
        lambda: make_batch_norm(32, 32, 784, EPSILON),
        ((32, 32, 784), (32,), (32,)),
        lambda x, s, b: _functional().batch_norm(x, None, None, s, b, True, 0.1, EPSILON),
    ),
    "cumulative sum": Subject(
        lambda: reduction.make_cumulative(f32, 512, 512, 1, False, False), ((512, 512, 1),), lambda x: x.cumsum(1)
    ),
}
