"""Rules of statements over matrix registers."""

from __future__ import annotations

from collections.abc import Callable

from polyc.emit.loop_ir.loops import Buffer, MatrixClear, MatrixMove, MatrixProduct, MatrixShapes, MatrixStatement
from polyc.emit.loop_ir.verify_warps import Broken
from polyc.poly.expr import Expr
from polyc.poly.target import MATRIX_PRODUCTS, MATRIX_REGISTERS, MATRIX_ROWS, MATRIX_WORDS

BufferOf = Callable[[str, int], Buffer]
LanesOf = Callable[[str, tuple[Expr, ...]], int]


def check_matrices(s: MatrixStatement, buffer_of: BufferOf, lanes_of: LanesOf) -> None:
    """What can be checked of one statement alone.

    Raises:
        Broken: there is no such register, shape, intrinsic or buffer.
    """
    if isinstance(s, MatrixShapes):
        if len(s.shapes) > MATRIX_REGISTERS:
            raise Broken(f"shapes of {len(s.shapes)} matrix registers")
        for rows, words in s.shapes:
            if not (0 <= rows <= MATRIX_ROWS and 0 <= words <= MATRIX_WORDS) or bool(rows) != bool(words):
                raise Broken(f"a matrix register of {rows} rows of {words} words")
        return
    if isinstance(s, MatrixClear):
        _register(s.register)
        return
    if isinstance(s, MatrixProduct):
        for register in (s.acc, s.left, s.right):
            _register(register)
        if s.intrinsic not in MATRIX_PRODUCTS:
            raise Broken(f"matrices are not multiplied by '{s.intrinsic}'")
        return
    assert isinstance(s, MatrixMove), type(s)
    _register(s.register)
    buffer = buffer_of(s.array, len(s.index))
    if lanes_of(s.array, s.index) != 1 or len(s.step) != len(s.index) or not s.index:
        raise Broken(f"a matrix of '{s.array}' has no place")
    if buffer.dtype.bits != 32:
        raise Broken(f"a matrix of {buffer.dtype}")
    if s.store and not buffer.writable:
        raise Broken(f"a matrix is stored to read-only '{s.array}'")


def _register(k: int) -> None:
    if not 0 <= k < MATRIX_REGISTERS:
        raise Broken(f"there is no matrix register {k}")
