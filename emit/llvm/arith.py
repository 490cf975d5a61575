"""LLVM instructions for polyc's arithmetic: NumPy's results on every element type.

Every function takes and gives `Value`s, scalar or vector alike. `f16` and `bf16` are
computed in `f32` and rounded after each operation, as NumPy and ml_dtypes do.

What has no instructions here is a `BuildError`.
"""

from __future__ import annotations

from collections.abc import Callable

from polyc.emit.llvm.code import FunctionText
from polyc.emit.llvm.types import Value, constant, register_type, scalar_type, splat, suffix
from polyc.poly.dtypes import DType, bf16, bool_, f16, f32, f64, i16, i32, i64, u64
from polyc.poly.errors import BuildError

_FLOAT = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_BOOL = {"+": "or", "*": "and", "&": "and", "|": "or", "^": "xor", "and": "and", "or": "or"}
_FCMP = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_ICMP = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "sqrt": "sqrt"}
_X86_DOT_PAIRS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}

_X86_DOT_CODES = {
    4: "llvm.x86.ssse3.pmadd.ub.sw.128", 8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512",
}  # fmt: skip
_DOT_BF16 = {
    "x86-64": "llvm.x86.avx512bf16.dpbf16ps.{bits}",
    "aarch64": "llvm.aarch64.neon.bfdot.v{lanes}f32.v{halves}bf16",
}


class Arithmetic:
    """Emits into `f`.

    `fast` (fast_math) lets LLVM divide by multiplying with a reciprocal, and nothing more:
    contraction is the fma pass's work, reassociation the scheduler's, and the elementary
    functions (`polyc.emit.mathlib`) are wrong if their additions are reordered.
    """

    def __init__(self, f: FunctionText, fast: bool = False) -> None:
        self.f = f
        self.divide = "arcp " if fast else ""
        self.subscript = 0  # > 0 inside subscripts and bounds, where overflow cannot happen

    # ---- small things ----

    def value(self, text: str, dtype: DType, lanes: int) -> Value:
        """Emit an instruction that gives `dtype`."""
        return Value(self.f.compute(text), dtype, lanes)

    def same(self, text: str, like: Value) -> Value:
        """Emit an instruction with the type of `like`."""
        return self.value(text, like.dtype, like.lanes)

    def call(self, name: str, like: Value, *args: Value, extra: str = "") -> Value:
        """An LLVM intrinsic overloaded on the type of `like`, which is also the result's."""
        full = f"llvm.{name}.{suffix(scalar_type(like.dtype), like.lanes)}"
        types = [a.type for a in args] + ([extra.split()[0]] if extra else [])
        self.f.module.declare(full, like.type, types)
        operands = ", ".join([a.typed for a in args] + ([extra] if extra else []))
        return self.same(f"call {like.type} @{full}({operands})", like)

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        """`a` where `cond`, else `b` (both evaluated)."""
        return self.same(f"select {cond.typed}, {a.typed}, {b.typed}", a)

    def zero(self, like: Value) -> Value:
        """0 of the same type."""
        return constant(0, like.dtype, like.lanes)

    def _narrow_float(self, v: Value) -> bool:
        return v.dtype.is_float and v.dtype.bits == 16

    def widen(self, v: Value) -> Value:
        """`f16` and `bf16` as `f32`; others unchanged."""
        return self.cast(v, f32) if self._narrow_float(v) else v

    # ---- binary ----

    def binary(self, op: str, a: Value, b: Value, dtype: DType) -> Value:
        """An operator of `polyc.poly.expr` other than lazy `and`/`or` (those come in evaluated)."""
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
        return self._table(_INT, op, a, b, "nsw " if self.subscript and op in ("+", "-", "*") else "")

    def _table(self, table: dict[str, str], op: str, a: Value, b: Value, flags: str = "") -> Value:
        if op not in table:
            raise BuildError(f"the operator '{op}' on {a.dtype} must be expanded before LLVM IR is printed")
        return self.same(f"{table[op]} {flags}{a.typed}, {b.ref}", a)

    def compare(self, op: str, a: Value, b: Value) -> Value:
        """A comparison; gives `bool_`."""
        a, b = self.widen(a), self.widen(b)
        if a.dtype.is_float:
            return self.value(f"fcmp {_FCMP[op]} {a.typed}, {b.ref}", bool_, a.lanes)
        sign = "" if op in ("==", "!=") else "s" if a.dtype.kind == "int" else "u"
        return self.value(f"icmp {sign}{_ICMP[op]} {a.typed}, {b.ref}", bool_, a.lanes)

    def _shift(self, op: str, a: Value, b: Value) -> Value:
        """NumPy: shifting by the width or more (or by less than 0) gives 0, or the sign."""
        bits = a.dtype.bits
        limit = constant(bits, a.dtype, a.lanes)
        inside = self.value(f"icmp ult {b.typed}, {limit.ref}", bool_, a.lanes)
        if op == ">>" and a.dtype.kind == "int":
            amount = self.select(inside, b, constant(bits - 1, a.dtype, a.lanes))
            return self.same(f"ashr {a.typed}, {amount.ref}", a)
        amount = self.select(inside, b, self.zero(b))
        shifted = self.same(f"{'shl' if op == '<<' else 'lshr'} {a.typed}, {amount.ref}", a)
        return self.select(inside, shifted, self.zero(a))

    def divide_by_constant(self, op: str, a: Value, divisor: int) -> Value:
        """`a // divisor` or `a % divisor` for a positive constant (that fits the type)."""
        bits, signed = a.dtype.bits, a.dtype.kind == "int"
        c = constant(divisor, a.dtype, a.lanes)
        if divisor & (divisor - 1) == 0:
            if op == "%":
                return self.same(f"and {a.typed}, {constant(divisor - 1, a.dtype, a.lanes).ref}", a)
            shift = constant(divisor.bit_length() - 1, a.dtype, a.lanes)
            return self.same(f"{'ashr' if signed else 'lshr'} {a.typed}, {shift.ref}", a)
        if not signed:
            return self.same(f"{'udiv' if op == '//' else 'urem'} {a.typed}, {c.ref}", a)
        rest = self.same(f"srem {a.typed}, {c.ref}", a)
        borrow = self.same(f"ashr {rest.typed}, {constant(bits - 1, a.dtype, a.lanes).ref}", a)
        if op == "%":
            fix = self.same(f"and {borrow.typed}, {c.ref}", a)
            return self.same(f"add {rest.typed}, {fix.ref}", a)
        quotient = self.same(f"sdiv {a.typed}, {c.ref}", a)
        return self.same(f"add {quotient.typed}, {borrow.ref}", a)

    def _int_divmod(self, op: str, a: Value, b: Value) -> Value:
        """Floor division as NumPy: by zero gives 0, and the smallest integer // -1 wraps."""
        zero, one = self.zero(a), constant(1, a.dtype, a.lanes)
        by_zero = self.compare("==", b, zero)
        bad = by_zero
        if a.dtype.kind == "int":
            smallest = constant(-(1 << (a.dtype.bits - 1)), a.dtype, a.lanes)
            wraps = self.same(
                f"and {self.compare('==', a, smallest).typed}, "
                f"{self.compare('==', b, constant(-1, a.dtype, a.lanes)).ref}", by_zero
            )  # fmt: skip
            bad = self.same(f"or {by_zero.typed}, {wraps.ref}", by_zero)
        divisor = self.select(bad, one, b)
        if a.dtype.kind == "uint":
            out = self.same(f"{'udiv' if op == '//' else 'urem'} {a.typed}, {divisor.ref}", a)
            return self.select(by_zero, zero, out)
        rest = self.same(f"srem {a.typed}, {divisor.ref}", a)
        differ = self.compare("<", self.same(f"xor {rest.typed}, {divisor.ref}", a), zero)
        borrow = self.same(f"and {self.compare('!=', rest, zero).typed}, {differ.ref}", by_zero)
        if op == "%":
            out = self.same(f"add {rest.typed}, {self.select(borrow, divisor, zero).ref}", a)
        else:
            quotient = self.same(f"sdiv {a.typed}, {divisor.ref}", a)
            out = self.same(f"sub {quotient.typed}, {self.select(borrow, one, zero).ref}", a)
        return self.select(by_zero, zero, out)

    def _float_divmod(self, op: str, a: Value, b: Value) -> Value:
        """Python's float `//` and `%`, step by step as NumPy's `npy_divmod` defines them."""
        zero, one = self.zero(a), constant(1, a.dtype, a.lanes)
        rest = self.same(f"frem {a.typed}, {b.ref}", a)
        nonzero = self.compare("!=", rest, zero)
        signs = self.same(
            f"xor {self.compare('<', b, zero).typed}, {self.compare('<', rest, zero).ref}",
            nonzero,
        )
        adjust = self.same(f"and {nonzero.typed}, {signs.ref}", nonzero)
        by_zero = self.compare("==", b, zero)
        if op == "%":
            moved = self.select(adjust, self.same(f"fadd {rest.typed}, {b.ref}", a), rest)
            out = self.select(nonzero, moved, self.call("copysign", a, zero, b))
            # NaN is "not equal to 0", so it passes through `moved`.
            return self.select(by_zero, rest, out)
        ratio = self.same(f"fdiv {a.typed}, {b.ref}", a)
        exact = self.same(f"fdiv {self.same(f'fsub {a.typed}, {rest.ref}', a).typed}, {b.ref}", a)
        div = self.select(adjust, self.same(f"fsub {exact.typed}, {one.ref}", a), exact)
        floor = self.call("floor", a, div)
        high = self.compare(">", self.same(f"fsub {div.typed}, {floor.ref}", a), constant(0.5, a.dtype, a.lanes))
        rounded = self.select(high, self.same(f"fadd {floor.typed}, {one.ref}", a), floor)
        out = self.select(self.compare("!=", div, zero), rounded, self.call("copysign", a, zero, ratio))
        return self.select(by_zero, ratio, out)

    # ---- unary, intrinsics ----

    def unary(self, op: str, a: Value) -> Value:
        """`neg`, `not`, `~`."""
        if op in ("not", "~"):
            ones = splat(scalar_type(a.dtype), "true" if a.dtype.kind == "bool" else "-1", a.lanes)
            return self.same(f"xor {a.typed}, {ones}", a)
        if self._narrow_float(a):
            return self.cast(self.unary(op, self.widen(a)), a.dtype)
        if a.dtype.is_float:
            return self.same(f"fneg {a.typed}", a)
        nsw = "nsw " if self.subscript else ""
        return self.same(f"sub {nsw}{a.type} {self.zero(a).ref}, {a.ref}", a)

    def intrinsic(self, name: str, args: list[Value], dtype: DType) -> Value:
        """A basic `Call`: exact or correctly rounded on all back ends."""
        a = args[0]
        if name == "bitcast":
            to = register_type(dtype, a.lanes)
            return a if to == a.type else self.value(f"bitcast {a.typed} to {to}", dtype, a.lanes)
        if name == "dot_pairs":
            return self._dot_pairs(*args)
        if name in ("dot_bytes", "dot_bytes_add"):
            return self._dot_bytes(args[0], args[1], args[2] if len(args) > 2 else self.zero(a))
        if name == "widen_pairs":
            return self._widen_pairs(a)
        if not a.dtype.is_float:
            return self._integer_intrinsic(name, a)
        if self._narrow_float(a):
            wide = self.intrinsic(name, [self.widen(x) for x in args], f32)
            return wide if wide.dtype == bool_ else self.cast(wide, dtype)
        if name == "fma":
            return self.call("fma", a, *args)
        if name in ("dot_bf16", "dot_bf16_add"):
            return self._dot_bf16(args[0], args[1], args[2] if len(args) > 2 else self.zero(a))
        if name == "abs":
            return self.call("fabs", a, a)
        if name == "isnan":
            return self.value(f"fcmp uno {a.typed}, {a.ref}", bool_, a.lanes)
        if name == "isinf":
            return self.compare("==", self.call("fabs", a, a), constant(float("inf"), a.dtype, a.lanes))
        if name in _ROUNDING:
            return self.call(_ROUNDING[name], a, a)
        raise BuildError(f"the intrinsic '{name}' must be expanded (emit.mathlib) before LLVM IR is printed")

    def _integer_intrinsic(self, name: str, a: Value) -> Value:
        if name == "abs":
            return a if a.dtype.kind != "int" else self.call("abs", a, a, extra="i1 false")
        if name in ("floor", "ceil", "trunc", "round"):
            return a
        raise BuildError(f"the intrinsic '{name}' is not defined on {a.dtype}")

    def _dot_pairs(self, a: Value, b: Value) -> Value:
        """Two products of halves, added: one instruction of x86 on whole registers."""
        n = a.lanes
        name = _X86_DOT_PAIRS.get(n)
        if name is not None and self.f.module.isa == "x86-64" and 32 * n <= self.f.module.vector_bits:
            halves = f"<{2 * n} x i16>"
            self.f.module.declare(name, a.type, [halves, halves])
            x, y = (self.f.emit(f"bitcast {v.typed} to {halves}") for v in (a, b))
            return self.same(f"call {a.type} @{name}({halves} {x}, {halves} {y})", a)
        by = constant(16, i32, n).ref
        low = [self.same(f"ashr {self.same(f'shl {v.typed}, {by}', v).typed}, {by}", v) for v in (a, b)]
        high = [self.same(f"ashr {v.typed}, {by}", v) for v in (a, b)]
        products = [self.same(f"mul {x.typed}, {y.ref}", a) for x, y in (low, high)]
        return self.same(f"add {products[0].typed}, {products[1].ref}", a)

    def _dot_bytes(self, a: Value, b: Value, added: Value) -> Value:
        """Four products of bytes, the first operand's unsigned, and a sum: one instruction of x86 with VNNI, three
        where sums of two products cannot saturate."""
        module, n = self.f.module, a.lanes
        if 32 * n == module.vector_bits and module.dot_bytes:
            name, quarters = f"llvm.x86.avx512.vpdpbusd.{32 * n}", f"<{4 * n} x i8>"
            module.declare(name, a.type, [a.type, quarters, quarters])
            left, right = (self.f.emit(f"bitcast {v.typed} to {quarters}") for v in (a, b))
            return self.same(f"call {a.type} @{name}({added.typed}, {quarters} {left}, {quarters} {right})", a)
        if 32 * n == module.vector_bits and module.dot_codes and a.ref in self.f.low_bytes:
            name, quarters, halves = _X86_DOT_CODES[n], f"<{4 * n} x i8>", f"<{2 * n} x i16>"
            module.declare(name, halves, [quarters, quarters])
            left, right = (self.f.emit(f"bitcast {v.typed} to {quarters}") for v in (a, b))
            pairs = self.f.emit(f"call {halves} @{name}({quarters} {left}, {quarters} {right})")
            sums = self.same(f"bitcast {halves} {pairs} to {a.type}", a)
            ones = constant(0x00010001, i32, n)
            return self.same(f"add {added.typed}, {self._dot_pairs(sums, ones).ref}", a)
        for shift in (0, 8, 16, 24):
            by, up, down = (constant(k, i32, n).ref for k in (shift, 24 - shift, 24))
            x = self.same(f"and {self.same(f'lshr {a.typed}, {by}', a).typed}, {constant(255, i32, n).ref}", a)
            y = self.same(f"ashr {self.same(f'shl {b.typed}, {up}', b).typed}, {down}", b)
            added = self.same(f"add {added.typed}, {self.same(f'mul {x.typed}, {y.ref}', a).ref}", a)
        return added

    def _dot_bf16(self, a: Value, b: Value, added: Value) -> Value:
        """Two products of bf16 and a sum in f32: one instruction, in the machine's own order and rounding.

        A vector that is not one register's is made of, or becomes a part of, some that are.
        """
        module, n = self.f.module, a.lanes
        name, whole = _DOT_BF16[module.isa], min(module.vector_bits // 32, max(4, n))
        if n > whole:
            parts = [[self.slice(v, k, whole) for v in (a, b, added)] for k in range(0, n, whole)]
            return self.concatenate([self._dot_bf16(*p) for p in parts])
        if n < whole:
            wide = (self.extended(v, whole) for v in (a, b, added))
            return self.slice(self._dot_bf16(*wide), 0, n)
        halves = f"<{2 * n} x bfloat>"
        full = name.format(bits=32 * n, lanes=n, halves=2 * n)
        module.declare(full, a.type, [a.type, halves, halves])
        x, y = (self.f.emit(f"bitcast {v.typed} to {halves}") for v in (a, b))
        return self.same(f"call {a.type} @{full}({added.typed}, {halves} {x}, {halves} {y})", a)

    def concatenate(self, parts: list[Value]) -> Value:
        """Vectors of one length side by side."""
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self._side_by_side(a, b) for a, b in pairs]
        return parts[0]

    def _side_by_side(self, a: Value, b: Value) -> Value:
        lanes = ", ".join(f"i32 {i}" for i in range(2 * a.lanes))
        return self.value(f"shufflevector {a.typed}, {b.typed}, <{2 * a.lanes} x i32> <{lanes}>", a.dtype, 2 * a.lanes)

    def extended(self, v: Value, lanes: int) -> Value:
        """A scalar or shorter vector in the first lanes."""
        out = Value("poison", v.dtype, lanes)
        if v.lanes == 1:
            return self.same(f"insertelement {out.typed}, {v.typed}, i64 0", out)
        picked = ", ".join(f"i32 {min(i, v.lanes)}" for i in range(lanes))
        return self.value(
            f"shufflevector {v.typed}, {v.type} zeroinitializer, <{lanes} x i32> <{picked}>", v.dtype, lanes
        )

    def _widen_pairs(self, a: Value) -> Value:
        """Two bytes in the low half become the two halves: one sign extension of twice the lanes."""
        n = a.lanes
        kept = self._convert("trunc", a, i16)
        both = self.f.emit(f"bitcast {kept.typed} to <{2 * n} x i8>")
        wide = self.f.emit(f"sext <{2 * n} x i8> {both} to <{2 * n} x i16>")
        return self.same(f"bitcast <{2 * n} x i16> {wide} to {a.type}", a)

    def reduce(self, op: str, v: Value) -> Value:
        """`HReduce`: halves combined pairwise, lane i with lane i + n/2."""
        while v.lanes > 1:
            half = v.lanes // 2
            if half * 2 != v.lanes:
                raise BuildError(f"a horizontal reduction needs a power of two of lanes, not {v.lanes}")
            low, high = self.slice(v, 0, half), self.slice(v, half, half)
            v = self.binary(op, low, high, v.dtype)
        return v

    def slice(self, v: Value, start: int, count: int) -> Value:
        """`count` neighbouring lanes; one lane as a scalar."""
        if count == 1:
            return self.value(f"extractelement {v.typed}, i64 {start}", v.dtype, 1)
        lanes = ", ".join(f"i32 {i}" for i in range(start, start + count))
        return self.value(f"shufflevector {v.typed}, {v.type} poison, <{count} x i32> <{lanes}>", v.dtype, count)

    def broadcast(self, v: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return v
        if not v.ref.startswith("%"):
            return Value(splat(scalar_type(v.dtype), v.ref, lanes), v.dtype, lanes)
        out = Value("poison", v.dtype, lanes)
        one = self.same(f"insertelement {out.typed}, {v.typed}, i64 0", out)
        return self.same(f"shufflevector {one.typed}, {one.type} poison, <{lanes} x i32> zeroinitializer", out)

    def ramp(self, base: Value, stride: int, lanes: int) -> Value:
        """`base, base + stride, ...`."""
        steps = ", ".join(f"i64 {k * stride}" for k in range(lanes))
        return self.same(f"add nsw {self.broadcast(base, lanes).typed}, <{steps}>", Value("", i64, lanes))

    # ---- casts ----

    def cast(self, v: Value, dtype: DType) -> Value:
        """NumPy's `astype`. Out-of-range floats to integers give some value (as in C, but no UB)."""
        if v.dtype == dtype:
            return v
        if dtype.kind == "bool":
            wide = self.widen(v)
            return self.compare("!=", wide, self.zero(wide))
        if dtype.is_float:
            return self._to_float(v, dtype)
        if v.dtype.is_float:
            return self._float_to_int(v, dtype)
        if v.dtype.bits == dtype.bits:
            return Value(v.ref, dtype, v.lanes)
        how = "trunc" if v.dtype.bits > dtype.bits else "sext" if v.dtype.kind == "int" else "zext"
        return self._convert(how, v, dtype)

    def _convert(self, how: str, v: Value, dtype: DType) -> Value:
        return self.value(f"{how} {v.typed} to {register_type(dtype, v.lanes)}", dtype, v.lanes)

    def _float_to_int(self, v: Value, dtype: DType) -> Value:
        v = self.widen(v)
        if dtype == u64:
            return self.same(f"freeze {self._convert('fptoui', v, u64).typed}", Value("", u64, v.lanes))
        step = i32 if dtype.bits < 32 or dtype == i32 else i64
        raw = self._convert("fptosi", v, step)
        return self.cast(self.same(f"freeze {raw.typed}", raw), dtype)

    def _to_float(self, v: Value, dtype: DType) -> Value:
        if not v.dtype.is_float:
            if dtype.bits == 16:
                return self._to_float(self._to_float(v, f32), dtype)
            return self._convert("sitofp" if v.dtype.kind == "int" else "uitofp", v, dtype)
        steps: dict[tuple[str, str], Callable[[Value], Value]] = {
            ("bf16", "f32"): self._bf16_to_f32,
            ("f32", "bf16"): self._f32_to_bf16,
            ("f64", "f16"): self._f64_to_f16,
            ("f16", "f32"): lambda x: self._convert("fpext", x, f32),
            ("f32", "f16"): lambda x: self._convert("fptrunc", x, f16),
            ("f32", "f64"): lambda x: self._convert("fpext", x, f64),
            ("f64", "f32"): lambda x: self._convert("fptrunc", x, f32),
        }
        step = steps.get((v.dtype.name, dtype.name))
        return step(v) if step else self._to_float(self._to_float(v, f32), dtype)

    def _bf16_to_f32(self, v: Value) -> Value:
        bits = self._convert("zext", v, i32)
        shifted = self.same(f"shl {bits.typed}, {constant(16, i32, v.lanes).ref}", bits)
        return self._convert("bitcast", shifted, f32)

    def _f32_to_bf16(self, v: Value) -> Value:
        """Round to nearest even on the bits; NaN becomes the quiet NaN with its sign (ml_dtypes)."""
        n = v.lanes
        bits = self._convert("bitcast", v, i32)
        top = self.same(f"lshr {bits.typed}, {constant(16, i32, n).ref}", bits)
        odd = self.same(f"and {top.typed}, {constant(1, i32, n).ref}", bits)
        bias = self.same(f"add {odd.typed}, {constant(0x7FFF, i32, n).ref}", bits)
        rounded = self.same(f"add {bits.typed}, {bias.ref}", bits)
        out = self.same(f"lshr {rounded.typed}, {constant(16, i32, n).ref}", bits)
        sign = self.same(f"and {top.typed}, {constant(0x8000, i32, n).ref}", bits)
        quiet = self.same(f"or {sign.typed}, {constant(0x7FC0, i32, n).ref}", bits)
        nan = self.value(f"fcmp uno {v.typed}, {v.ref}", bool_, n)

        return self._convert("trunc", self.select(nan, quiet, out), bf16)

    def _f64_to_f16(self, v: Value) -> Value:
        """Through `f32` rounded to odd, so that the second rounding is the only one."""
        n = v.lanes
        single = self._convert("fptrunc", v, f32)
        back = self.call("fabs", v, self._convert("fpext", single, f64))
        size = self.call("fabs", v, v)
        bits = self._convert("bitcast", single, i32)
        one = constant(1, i32, n)
        odd = self.compare("!=", self.same(f"and {bits.typed}, {one.ref}", bits), constant(0, i32, n))
        up = self.select(self.compare(">", size, back), one, constant(0, i32, n))
        step = self.select(self.compare("<", size, back), constant(-1, i32, n), up)
        moved = self.same(f"add {bits.typed}, {self.select(odd, constant(0, i32, n), step).ref}", bits)
        return self._convert("fptrunc", self._convert("bitcast", moved, f32), f16)
