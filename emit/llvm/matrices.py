"""Statements over matrix registers as LLVM's intrinsics for AMX, with the registers that the loop IR has chosen.

A configuration is the 64 bytes that `ldtilecfg` reads: palette 1, then bytes in a row and rows of each register (Intel,
Architecture Instruction Set Extensions Programming Reference, chapter 3).
"""

from __future__ import annotations

from polyc.emit.llvm.expr import Expressions
from polyc.emit.llvm.types import Value
from polyc.emit.loop_ir.loops import MatrixClear, MatrixMove, MatrixProduct, MatrixShapes, MatrixStatement
from polyc.poly.dtypes import i64

WORD = 4
INSTRUCTIONS = {
    ("dot_bytes", False): "tdpbusd",
    ("dot_bytes", True): "tdpbsud",
    ("dot_bf16", False): "tdpbf16ps",
    ("dot_bf16", True): "tdpbf16ps",
}
"""By intrinsic, and whether its operands are swapped."""


def write(x: Expressions, s: MatrixStatement) -> None:
    """The instructions of a statement."""
    f, module = x.f, x.f.module
    if isinstance(s, MatrixShapes):
        if s.shapes:
            name = module.declare("llvm.x86.ldtilecfg", "void", ["ptr"])
            f.do(f"call void {name}(ptr {module.shared_constant('matrices', _configuration(s))})")
        else:
            f.do(f"call void {module.declare('llvm.x86.tilerelease', 'void', [])}()")
        return
    if isinstance(s, MatrixClear):
        f.do(f"call void {module.declare('llvm.x86.tilezero', 'void', ['i8'])}(i8 {s.register})")
        return
    if isinstance(s, MatrixProduct):
        name = module.declare(f"llvm.x86.{INSTRUCTIONS[s.intrinsic, s.swapped]}", "void", ["i8", "i8", "i8"])
        f.do(f"call void {name}(i8 {s.acc}, i8 {s.left}, i8 {s.right})")
        return
    assert isinstance(s, MatrixMove), type(s)
    how = "tilestored64" if s.store else "tileloadd64"
    name = module.declare(f"llvm.x86.{how}", "void", ["i8", "ptr", "i64"])
    place = x.address(s.array, s.index)
    f.do(f"call void {name}(i8 {s.register}, ptr {place.pointer}, i64 {_row_bytes(x, s)})")


def _configuration(s: MatrixShapes) -> bytes:
    row_bytes = b"".join((WORD * words).to_bytes(2, "little") for _, words in s.shapes)
    rows = bytes(rows for rows, _ in s.shapes)
    return bytes([1]) + bytes(15) + row_bytes.ljust(32, b"\0") + rows.ljust(16, b"\0")


def _row_bytes(x: Expressions, s: MatrixMove) -> str:
    """How many bytes rows are apart."""
    fixed, moving = 0, list[Value]()
    for step, stride in zip(s.step, x.storage[s.array].strides, strict=True):
        if isinstance(stride, int):
            fixed += WORD * step * stride
        elif step:
            moving.append(x.arith.same(f"mul nsw {stride.typed}, {WORD * step}", stride))
    total = Value(str(fixed), i64)
    for v in moving:
        total = x.arith.same(f"add nsw {v.typed}, {total.ref}", v)
    return total.ref
