"""MLIR operations for polyc's arithmetic: NumPy's results on every element type.

Every function takes and gives `Value`s, scalar or vector alike. `f16` and `bf16` are computed in `f32` and rounded
after each operation, as NumPy and ml_dtypes do. Nothing here is poison or undefined for any operand: shifts and
divisions are guarded, and floats outside of an integer's range become 0.

What has no operations here is a `BuildError`.
"""

from __future__ import annotations

from polyc.emit.mlir.code import FunctionText
from polyc.emit.mlir.types import Value, literal, register_type, scalar_type
from polyc.poly.dtypes import DType, bf16, bool_, f32, i32, i64
from polyc.poly.errors import BuildError

_FLOAT = {"+": "addf", "-": "subf", "*": "mulf", "/": "divf"}
_INT = {"+": "addi", "-": "subi", "*": "muli", "&": "andi", "|": "ori", "^": "xori"}
_BOOL = {"+": "ori", "*": "andi", "&": "andi", "|": "ori", "^": "xori", "and": "andi", "or": "ori"}
_FCMP = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_ICMP = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "sqrt": "sqrt"}


class Arithmetic:
    """Emits into `f`. `fast` (fast_math) allows to divide by multiplying with a reciprocal, and nothing more."""

    def __init__(self, f: FunctionText, fast: bool = False) -> None:
        self.f = f
        self.divide = " fastmath<arcp>" if fast else ""

    # ---- small things ----

    def same(self, op: str, *args: Value, flags: str = "") -> Value:
        """An operation whose operands and result have one type."""
        a = args[0]
        text = f"{op} {', '.join(x.ref for x in args)}{flags} : {a.type}"
        return Value(self.f.emit(text), a.dtype, a.lanes)

    def constant(self, value: object, like: Value) -> Value:
        """A constant of the same type, in every lane."""
        text = literal(value, like.dtype)
        return Value(self.f.constant(text if like.lanes == 1 else f"dense<{text}>", like.type), like.dtype, like.lanes)

    def scalar(self, value: object, dtype: DType) -> Value:
        """A scalar constant."""
        return Value(self.f.constant(literal(value, dtype), scalar_type(dtype)), dtype)

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        """`a` where `cond`, else `b` (both evaluated)."""
        types = a.type if cond.lanes == 1 else f"{cond.type}, {a.type}"
        return Value(self.f.emit(f"arith.select {cond.ref}, {a.ref}, {b.ref} : {types}"), a.dtype, a.lanes)

    def both(self, a: Value, b: Value) -> Value:
        """Bits of both."""
        return self.same("arith.andi", a, b)

    def _convert(self, op: str, v: Value, dtype: DType) -> Value:
        to = register_type(dtype, v.lanes)
        return Value(self.f.emit(f"{op} {v.ref} : {v.type} to {to}"), dtype, v.lanes)

    def _narrow_float(self, v: Value) -> bool:
        return v.dtype.is_float and v.dtype.bits == 16

    def widen(self, v: Value) -> Value:
        """`f16` and `bf16` as `f32`; others unchanged."""
        return self.cast(v, f32) if self._narrow_float(v) else v

    # ---- binary ----

    def binary(self, op: str, a: Value, b: Value, dtype: DType) -> Value:
        """An operator of `polyc.poly.expr`; both operands are there already."""
        if op in _ICMP:
            return self.compare(op, a, b)
        if self._narrow_float(a):
            return self.cast(self.binary(op, self.widen(a), self.widen(b), f32), dtype)
        if op in ("min", "max"):
            return self.select(self.compare("<" if op == "min" else ">", b, a), b, a)
        if a.dtype.kind == "bool":
            return self._table(_BOOL, op, a, b)
        if a.dtype.is_float:
            if op in ("//", "%"):
                return self._float_divmod(op, a, b)
            return self._table(_FLOAT, op, a, b, self.divide if op == "/" else "")
        if op in ("<<", ">>"):
            return self._shift(op, a, b)
        if op in ("//", "%"):
            return self._int_divmod(op, a, b)
        return self._table(_INT, op, a, b)

    def _table(self, table: dict[str, str], op: str, a: Value, b: Value, flags: str = "") -> Value:
        if op not in table:
            raise BuildError(f"the operator '{op}' on {a.dtype} must be expanded before MLIR is printed")
        return self.same(f"arith.{table[op]}", a, b, flags=flags)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """A comparison; gives `bool_`."""
        a, b = self.widen(a), self.widen(b)
        if a.dtype.is_float:
            return self._compared(f"cmpf {_FCMP[op]}", a, b)
        sign = "" if op in ("==", "!=") else "s" if a.dtype.kind == "int" else "u"
        return self._compared(f"cmpi {sign}{_ICMP[op]}", a, b)

    def _compared(self, how: str, a: Value, b: Value) -> Value:
        return Value(self.f.emit(f"arith.{how}, {a.ref}, {b.ref} : {a.type}"), bool_, a.lanes)

    def _shift(self, op: str, a: Value, b: Value) -> Value:
        """NumPy: shifting by the width or more (or by less than 0) gives 0, or the sign."""
        bits, zero = a.dtype.bits, self.constant(0, a)
        inside = self._compared("cmpi ult", b, self.constant(bits, a))
        if op == ">>" and a.dtype.kind == "int":
            return self.same("arith.shrsi", a, self.select(inside, b, self.constant(bits - 1, a)))
        amount = self.select(inside, b, zero)
        return self.select(inside, self.same("arith.shli" if op == "<<" else "arith.shrui", a, amount), zero)

    def divide_by_constant(self, op: str, a: Value, divisor: int) -> Value:
        """`a // divisor` or `a % divisor` for a positive constant (that fits the type)."""
        signed, c = a.dtype.kind == "int", self.constant(divisor, a)
        if divisor & (divisor - 1) == 0:
            if op == "%":
                return self.both(a, self.constant(divisor - 1, a))
            return self._shifted("shrsi" if signed else "shrui", a, divisor.bit_length() - 1)
        if not signed:
            return self.same("arith.divui" if op == "//" else "arith.remui", a, c)
        rest = self.same("arith.remsi", a, c)
        borrow = self._shifted("shrsi", rest, a.dtype.bits - 1)  # -1 or 0
        if op == "%":
            return self.same("arith.addi", rest, self.both(borrow, c))
        return self.same("arith.addi", self.same("arith.divsi", a, c), borrow)

    def _int_divmod(self, op: str, a: Value, b: Value) -> Value:
        """Floor division as NumPy: by zero gives 0, and the smallest integer // -1 wraps."""
        zero, one = self.constant(0, a), self.constant(1, a)
        by_zero = self.compare("==", b, zero)
        if a.dtype.kind == "uint":
            divisor = self.select(by_zero, one, b)
            return self.select(by_zero, zero, self.same("arith.divui" if op == "//" else "arith.remui", a, divisor))
        smallest = self.constant(-(1 << (a.dtype.bits - 1)), a)
        wraps = self.both(self.compare("==", a, smallest), self.compare("==", b, self.constant(-1, a)))
        divisor = self.select(self.same("arith.ori", by_zero, wraps), one, b)
        rest = self.same("arith.remsi", a, divisor)
        differ = self.compare("<", self.same("arith.xori", rest, divisor), zero)
        borrow = self.both(self.compare("!=", rest, zero), differ)
        if op == "%":
            out = self.same("arith.addi", rest, self.select(borrow, divisor, zero))
        else:
            out = self.same("arith.subi", self.same("arith.divsi", a, divisor), self.select(borrow, one, zero))
        return self.select(by_zero, zero, out)

    def _float_divmod(self, op: str, a: Value, b: Value) -> Value:
        """Python's float `//` and `%`, step by step as NumPy's `npy_divmod` defines them."""
        zero, one = self.constant(0, a), self.constant(1, a)
        rest = self.same("arith.remf", a, b)
        nonzero = self.compare("!=", rest, zero)
        signs = self.same("arith.xori", self.compare("<", b, zero), self.compare("<", rest, zero))
        adjust, by_zero = self.both(nonzero, signs), self.compare("==", b, zero)
        if op == "%":
            moved = self.select(adjust, self.same("arith.addf", rest, b), rest)
            out = self.select(nonzero, moved, self.same("math.copysign", zero, b))
            return self.select(by_zero, rest, out)  # NaN is "not equal to 0", so it passes through `moved`
        ratio = self.same("arith.divf", a, b)
        exact = self.same("arith.divf", self.same("arith.subf", a, rest), b)
        div = self.select(adjust, self.same("arith.subf", exact, one), exact)
        floor = self.same("math.floor", div)
        high = self.compare(">", self.same("arith.subf", div, floor), self.constant(0.5, a))
        rounded = self.select(high, self.same("arith.addf", floor, one), floor)
        out = self.select(self.compare("!=", div, zero), rounded, self.same("math.copysign", zero, ratio))
        return self.select(by_zero, ratio, out)

    # ---- unary, intrinsics ----

    def unary(self, op: str, a: Value) -> Value:
        """`neg`, `not`, `~`."""
        if op in ("not", "~"):
            return self.same("arith.xori", a, self.constant(True if a.dtype.kind == "bool" else -1, a))
        if self._narrow_float(a):
            return self.cast(self.unary(op, self.widen(a)), a.dtype)
        return self.same("arith.negf", a) if a.dtype.is_float else self.same("arith.subi", self.constant(0, a), a)

    def intrinsic(self, name: str, args: list[Value], dtype: DType) -> Value:
        """A basic `Call`: exact or correctly rounded on all back ends."""
        a = args[0]
        if name == "bitcast":
            return self._bitcast(a, dtype)
        if name == "dot_pairs":
            return self._dot(args[0], args[1], 16, self.constant(0, a), signed=True)
        if name in ("dot_bytes", "dot_bytes_add"):
            return self._dot(args[0], args[1], 8, args[2] if len(args) > 2 else self.constant(0, a), signed=False)
        if name == "widen_pairs":
            return self._widen_pairs(a)
        if not a.dtype.is_float:
            return self._integer_intrinsic(name, a)
        if self._narrow_float(a):
            wide = self.intrinsic(name, [self.widen(x) for x in args], f32)
            return wide if wide.dtype == bool_ else self.cast(wide, dtype)
        if name == "fma":
            return self.same("math.fma", *args)
        if name == "abs":
            return self.same("math.absf", a)
        if name == "isnan":
            return self._compared("cmpf uno", a, a)
        if name == "isinf":
            return self.compare("==", self.same("math.absf", a), self.constant(float("inf"), a))
        if name in _ROUNDING:
            return self.same(f"math.{_ROUNDING[name]}", a)
        raise BuildError(f"the intrinsic '{name}' must be expanded (emit.mathlib) before MLIR is printed")

    def _integer_intrinsic(self, name: str, a: Value) -> Value:
        if name == "abs":
            return a if a.dtype.kind != "int" else self.same("math.absi", a)
        if name in ("floor", "ceil", "trunc", "round"):
            return a
        raise BuildError(f"the intrinsic '{name}' is not defined on {a.dtype}")

    def _bitcast(self, a: Value, dtype: DType) -> Value:
        same = register_type(dtype, a.lanes) == a.type
        return Value(a.ref, dtype, a.lanes) if same else self._convert("arith.bitcast", a, dtype)

    def _shifted(self, op: str, a: Value, by: int) -> Value:
        return a if by == 0 else self.same(f"arith.{op}", a, self.constant(by, a))

    def _dot(self, a: Value, b: Value, bits: int, added: Value, signed: bool) -> Value:
        """Products of the 16-bit or 8-bit parts of two i32, and a sum; the parts of `a` have a sign or not."""
        for low in range(0, 32, bits):
            up = 32 - bits - low
            x = self._shifted("shrsi" if signed else "shrui", self._shifted("shli", a, up), 32 - bits)
            y = self._shifted("shrsi", self._shifted("shli", b, up), 32 - bits)
            added = self.same("arith.addi", added, self.same("arith.muli", x, y))
        return added

    def _widen_pairs(self, a: Value) -> Value:
        """Two bytes in the low half become the two halves."""
        low = self._shifted("shrsi", self._shifted("shli", a, 24), 24)
        high = self._shifted("shrsi", self._shifted("shli", a, 16), 24)
        kept = self.same("arith.andi", low, self.constant(0xFFFF, a))
        return self.same("arith.ori", kept, self._shifted("shli", high, 16))

    # ---- vectors ----

    def reduce(self, op: str, v: Value) -> Value:
        """`HReduce`: halves combined pairwise, lane i with lane i + n/2."""
        while v.lanes > 1:
            half = v.lanes // 2
            if half * 2 != v.lanes:
                raise BuildError(f"a horizontal reduction needs a power of two of lanes, not {v.lanes}")
            v = self.binary(op, self._slice(v, 0, half), self._slice(v, half, half), v.dtype)
        return v

    def _slice(self, v: Value, start: int, count: int) -> Value:
        if count == 1:
            return self.lane(v, start)
        lanes = ", ".join(map(str, range(start, start + count)))
        text = f"vector.shuffle {v.ref}, {v.ref} [{lanes}] : {v.type}, {v.type}"
        return Value(self.f.emit(text), v.dtype, count)

    def lane(self, v: Value, k: int) -> Value:
        """One lane as a scalar."""
        return Value(self.f.emit(f"vector.extract {v.ref}[{k}] : {scalar_type(v.dtype)} from {v.type}"), v.dtype)

    def lanes_of(self, values: list[Value]) -> Value:
        """Scalars as the lanes of a vector."""
        type_ = register_type(values[0].dtype, len(values))
        text = f"vector.from_elements {', '.join(v.ref for v in values)} : {type_}"
        return Value(self.f.emit(text), values[0].dtype, len(values))

    def broadcast(self, v: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return v
        to = register_type(v.dtype, lanes)
        return Value(self.f.emit(f"vector.broadcast {v.ref} : {v.type} to {to}"), v.dtype, lanes)

    def steps(self, stride: int, lanes: int) -> Value:
        """`0, stride, 2 * stride, ...` (i64)."""
        text = f"dense<[{', '.join(str(k * stride) for k in range(lanes))}]>"
        return Value(self.f.constant(text, register_type(i64, lanes)), i64, lanes)

    def ramp(self, base: Value, stride: int, lanes: int) -> Value:
        """`base, base + stride, ...`."""
        return self.same("arith.addi", self.broadcast(base, lanes), self.steps(stride, lanes))

    # ---- casts ----

    def cast(self, v: Value, dtype: DType) -> Value:
        """NumPy's `astype`; floats outside of an integer's range, and NaN, become some number (here 0)."""
        if v.dtype == dtype:
            return v
        if dtype.kind == "bool":
            wide = self.widen(v)
            return self.compare("!=", wide, self.constant(0, wide))
        if dtype.is_float:
            return self._to_float(v, dtype)
        if v.dtype.is_float:
            return self._float_to_int(v, dtype)
        if v.dtype.bits == dtype.bits:
            return Value(v.ref, dtype, v.lanes)
        how = "trunci" if v.dtype.bits > dtype.bits else "extsi" if v.dtype.kind == "int" else "extui"
        return self._convert(f"arith.{how}", v, dtype)

    def _float_to_int(self, v: Value, dtype: DType) -> Value:
        """Narrow integers through i32, so that what fits wraps as NumPy has it."""
        v = self.widen(v)
        unsigned = dtype.kind == "uint" and dtype.bits == 64
        step = dtype if unsigned else i32 if dtype.bits < 32 or dtype == i32 else i64
        # Exact in both floats: the first numbers that do not fit. NaN is inside of nothing.
        high = self.constant(2.0 ** (step.bits - (not unsigned)), v)
        above = self.compare(">", v, self.constant(-1.0, v)) if unsigned else self._not_below(v, step.bits)
        inside = self.both(above, self.compare("<", v, high))
        kept = self.select(inside, v, self.constant(0.0, v))
        return self.cast(self._convert("arith.fptoui" if unsigned else "arith.fptosi", kept, step), dtype)

    def _not_below(self, v: Value, bits: int) -> Value:
        """Whether truncation towards zero gives at least the smallest integer."""
        smallest = -(2.0 ** (bits - 1))
        wide = v.dtype.bits == 64 and bits < 64  # there are floats between it and the next integer below
        return (
            self.compare(">", v, self.constant(smallest - 1, v))
            if wide
            else self.compare(">=", v, self.constant(smallest, v))
        )

    def _to_float(self, v: Value, dtype: DType) -> Value:
        if not v.dtype.is_float:
            if dtype.bits == 16:
                return self._to_float(self._to_float(v, f32), dtype)
            return self._convert("arith.sitofp" if v.dtype.kind == "int" else "arith.uitofp", v, dtype)
        # Through f32 from f16 to bf16, and between bf16 and f64: MLIR's `arith-expand` knows bf16 beside f32 only.
        if v.dtype.bits == dtype.bits or (bf16 in (v.dtype, dtype) and 64 in (v.dtype.bits, dtype.bits)):
            return self._to_float(self._to_float(v, f32), dtype)
        return self._convert("arith.extf" if v.dtype.bits < dtype.bits else "arith.truncf", v, dtype)
