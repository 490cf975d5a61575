"""What matrix registers hold: sums of bytes exactly, of bf16 in f32 from the first product to the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polyc.emit.loop_ir.loops import MatrixClear, MatrixMove, MatrixProduct, MatrixShapes, MatrixStatement
from polyc.poly.dtypes import DType, f32, i32
from polyc.poly.errors import BuildError
from polyc.poly.intrinsics import TABLE

Env = dict[str, Any]
Places = Callable[[Env, int, int], list[tuple[int, ...]]]

REGISTERS = "@matrices"
"""Where the registers are among the variables."""


class WrongMatrix(BuildError):
    """Matrix registers whose shapes do not fit what is done with them: a wrong pass."""

    code = "P313"


def statement(s: MatrixStatement, places: Places | None) -> Callable[[Env], None]:
    """What runs the statement; `places` of the words of a matrix that is moved."""
    if isinstance(s, MatrixShapes):
        shapes = s.shapes
        return lambda env: env.__setitem__(REGISTERS, [np.zeros(shape, np.uint32) for shape in shapes])
    if isinstance(s, MatrixClear):
        register = s.register
        return lambda env: _register(env, register).fill(0)
    if isinstance(s, MatrixProduct):
        return lambda env: _multiply(env, s)
    assert isinstance(s, MatrixMove), type(s)
    assert places is not None
    return lambda env: _move(env, s, places)


def _register(env: Env, k: int) -> np.ndarray[Any, Any]:
    registers = env.get(REGISTERS, [])
    if k >= len(registers) or not registers[k].size:
        raise WrongMatrix(f"matrix register {k} is used, and has no shape")
    found: np.ndarray[Any, Any] = registers[k]
    return found


def _move(env: Env, s: MatrixMove, places: Places) -> None:
    buffer, matrix = env["@" + s.array], _register(env, s.register)
    where = tuple(np.array(places(env, *matrix.shape)).T)
    if s.store:
        buffer[where] = matrix.reshape(-1).view(buffer.dtype)
    else:
        matrix[...] = buffer[where].view(np.uint32).reshape(matrix.shape)


def _multiply(env: Env, s: MatrixProduct) -> None:
    acc, left, right = (_register(env, k) for k in (s.acc, s.left, s.right))
    if (acc.shape, left.shape[1]) != ((left.shape[0], right.shape[1]), right.shape[0]):
        raise WrongMatrix(f"{left.shape} times {right.shape} is added to {acc.shape}")
    kind: DType = i32 if s.intrinsic == "dot_bytes" else f32
    product, total = TABLE[s.intrinsic].numpy, acc.view(kind.np)
    for k in range(left.shape[1]):
        a, b = np.broadcast_arrays(left[:, k, None].view(kind.np), right[None, k, :].view(kind.np))
        total += product(b, a) if s.swapped else product(a, b)
