"""Random nodes over 8-bit codes, and their results in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

KINDS = {"u8": np.uint8, "i8": np.int8}
Case = tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]
"""Nodes, operands, constants, and the result."""


def codes(rng: np.random.Generator, kind: str, *shape: int) -> np.ndarray:
    """Codes of the whole range; some arrays of its ends only, where narrow sums would overflow."""
    info = np.iinfo(KINDS[kind])
    if rng.random() < 0.2:
        return np.asarray(rng.choice([info.min, info.max], shape)).astype(KINDS[kind])
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(KINDS[kind])


def convolved(x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int = 1, group: int = 1) -> np.ndarray:
    """The convolution of integers, tap by tap."""
    x = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    filters, per_group, *kernel = w.shape
    high, wide = ((n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True))
    out = np.zeros((x.shape[0], group, filters // group, high, wide), np.int64)
    for a in range(kernel[0]):
        for b in range(kernel[1]):
            rows = slice(a * dilation, a * dilation + stride * (high - 1) + 1, stride)
            columns = slice(b * dilation, b * dilation + stride * (wide - 1) + 1, stride)
            part = x[:, :, rows, columns].reshape(x.shape[0], group, per_group, high, wide)
            out += np.einsum("ngchw,goc->ngohw", part, w[:, :, a, b].reshape(group, -1, per_group).astype(np.int64))
    return out.reshape(x.shape[0], filters, high, wide)


def saturated(values: np.ndarray, zero: int, kind: str) -> np.ndarray:
    """Rounded to even, above the zero point, within the type."""
    info = np.iinfo(KINDS[kind])
    return np.clip(np.rint(values) + zero, info.min, info.max).astype(KINDS[kind])


def _kind(rng: np.random.Generator) -> str:
    return str(rng.choice([*KINDS]))


def matrix(rng: np.random.Generator, k: int) -> Case:
    """`MatMulInteger` of any sizes and types, zero points absent, constant or given."""
    left, right = _kind(rng), _kind(rng)
    rows, inner, columns = (int(n) for n in (rng.integers(1, 20), rng.integers(1, 60), rng.integers(1, 50)))
    x, w = codes(rng, left, rows, inner), codes(rng, right, inner, columns)
    zero, shift = codes(rng, left), codes(rng, right, *([columns] if rng.random() < 0.3 else []))
    use, moving = rng.random(2) < 0.6, rng.random() < 0.4
    names = [f"x{k}", f"w{k}", f"z{k}" if use[0] else "", f"v{k}" if use[1] else ""]
    while not names[-1]:
        names.pop()
    given = {f"x{k}": x} | ({f"z{k}": zero} if use[0] and moving else {})
    constants = {f"w{k}": w} | ({f"z{k}": zero} if use[0] and not moving else {}) | ({f"v{k}": shift} if use[1] else {})
    left_whole = x.astype(np.int64) - (int(zero) if use[0] else 0)
    want = left_whole @ (w.astype(np.int64) - (shift.astype(np.int64) if use[1] else 0))
    return [helper.make_node("MatMulInteger", names, [f"y{k}"])], given, constants, want.astype(np.int32)


def _window(rng: np.random.Generator, group: int, kind: str, weights: str) -> tuple[Any, ...]:
    """Image, filters, attributes and how they are called in `convolved`."""
    kernel = int(rng.choice([1, 1, 2, 3]))
    stride, pad, dilation = (int(rng.integers(low, high)) for low, high in ((1, 3), (0, 2), (1, 3)))
    size = [int(n) for n in rng.integers(dilation * (kernel - 1) + 1, 12, 2)]
    per_group, filters = (1, 1) if group > 1 else (int(rng.integers(1, 20)), int(rng.integers(1, 40)))
    x = codes(rng, kind, int(rng.integers(1, 3)), per_group * group, *size)
    w = codes(rng, weights, filters * group, per_group, kernel, kernel)
    attrs = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2, "group": group}
    return x, w, attrs, (stride, pad, dilation, group)


def image(rng: np.random.Generator, k: int) -> Case:
    """`ConvInteger`, dense or depthwise."""
    kind, weights = _kind(rng), _kind(rng)
    x, w, attrs, window = _window(rng, int(rng.choice([1, 1, int(rng.integers(2, 20))])), kind, weights)
    zero = codes(rng, kind)
    node = helper.make_node("ConvInteger", [f"x{k}", f"w{k}", f"z{k}"], [f"y{k}"], **attrs)
    want = convolved(x.astype(np.int64) - int(zero), w, *window)
    return [node], {f"x{k}": x}, {f"w{k}": w, f"z{k}": zero}, want.astype(np.int32)


def linear(rng: np.random.Generator, k: int) -> Case:
    """`QLinearConv` behind a dense or depthwise one, or `QLinearMatMul`: exact sums, one factor, one rounding."""
    kind, result = _kind(rng), _kind(rng)
    step = np.float32(rng.random() * 0.01 + 1e-4)
    if rng.random() < 0.5:
        rows, inner, columns = (int(n) for n in rng.integers(1, 40, 3))
        x, w = codes(rng, kind, rows, inner), codes(rng, "i8", inner, columns)
        zero, out = codes(rng, kind), codes(rng, result)
        sums, operator, attrs = (x.astype(np.int64) - int(zero)) @ w.astype(np.int64), "QLinearMatMul", {}
    else:
        x, w, attrs, window = _window(rng, int(rng.choice([1, 1, int(rng.integers(2, 20))])), kind, "i8")
        zero, out, operator = codes(rng, kind), codes(rng, result), "QLinearConv"
        sums = convolved(x.astype(np.int64) - int(zero), w, *window)
    scales = {f"s{k}": np.float32(1), f"t{k}": step, f"u{k}": np.float32(1)}
    constants = {n: np.asarray(v) for n, v in scales.items()} | {f"z{k}": zero, f"w{k}": w, f"o{k}": out}
    constants[f"v{k}"] = np.zeros((), np.int8)
    names = [f"{n}{k}" for n in "xszwtvuo"]
    info = np.iinfo(KINDS[result])
    want = np.clip(np.rint(sums * np.longdouble(step) + int(out)), info.min, info.max).astype(KINDS[result])
    return [helper.make_node(operator, names, [f"y{k}"], **attrs)], {f"x{k}": x}, constants, want


MAKERS: tuple[Callable[[np.random.Generator, int], Case], ...] = (matrix, image, linear)
