"""Scalar expressions in the letter of the C standard: no extension, no undefined overflow.

Signed arithmetic on data goes through unsigned types, so that it wraps; subscripts and bounds,
which never overflow, print as they are. f16 and bf16 are their bits, converted by helpers.
"""

from __future__ import annotations

from collections.abc import Mapping

from polyc.emit.c.expr import ExprPrinter, Helpers
from polyc.emit.c.types import SCALAR
from polyc.emit.loop_ir.loops import Buffer
from polyc.poly.dtypes import DType
from polyc.poly.expr import Binary, Expr, Unary

PLAIN = SCALAR | {"f16": "uint16_t"}


class PlainPrinter(ExprPrinter):
    """Prints expressions over the given buffers."""

    def __init__(self, buffers: Mapping[str, Buffer], helpers: Helpers) -> None:
        super().__init__(buffers, helpers)
        self.wrapping = True

    def index(self, e: Expr) -> str:
        """A subscript or a bound."""
        before, self.wrapping = self.wrapping, False
        text = self.expr(e)
        self.wrapping = before
        return text

    def address(self, array: str, index: tuple[Expr, ...]) -> str:
        before, self.wrapping = self.wrapping, False
        text = super().address(array, index)
        self.wrapping = before
        return text

    def expr(self, e: Expr) -> str:
        if isinstance(e, Binary) and e.op in "+-*" and e.dtype.is_int and (self.wrapping or e.dtype.bits < 64):
            u = "uint64_t" if e.dtype.bits == 64 else "uint32_t"  # at least as wide as int
            return f"(({PLAIN[e.dtype.name]})(({u}){self.expr(e.a)} {e.op} ({u}){self.expr(e.b)}))"
        if isinstance(e, Unary) and e.op == "neg" and e.dtype.is_int and self.wrapping:
            u = "uint64_t" if e.dtype.bits == 64 else "uint32_t"
            return f"(({PLAIN[e.dtype.name]})(0u - ({u}){self.expr(e.a)}))"
        return super().expr(e)

    def _to_f32(self, text: str, dtype: DType) -> str:
        name = f"{dtype.name}_to_f32"
        self.helpers.scalars.add(name)
        return f"{name}({text})"

    def _from_f32(self, text: str, dtype: DType) -> str:
        name = f"f32_to_{dtype.name}"
        self.helpers.scalars.add(name)
        return f"{name}({text})"
