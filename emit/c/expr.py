"""Loop-IR expressions as C text. One printer owns precedence: every composite is parenthesised.

Scalars print as plain C. A vector operation that GCC's extensions lack (fma, floor, min, a
gather, a masked load, ...) is a call of a small generated function over the lanes, which the
C compiler turns into vector instructions. Which helpers are used is recorded in `Helpers`.

What C has no text for is a `BuildError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

from polyc.emit.c import vector as c_vector
from polyc.emit.c.types import MASK_BITS, c_type
from polyc.emit.loop_ir.loops import Broadcast, Buffer, HReduce, Ramp, VLoad
from polyc.emit.passes import columns
from polyc.emit.passes.simplify import decided_by_type, simplify_expr
from polyc.poly.dtypes import BY_NAME, DType, f32, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import COMPARISONS, Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, const_int
from polyc.poly.records import dataclass

_PLAIN = {"+", "-", "*", "/", "&", "|", "^"}
_HELPER = {"//": "floordiv", "%": "mod", "<<": "shl", ">>": "shr", "min": "min", "max": "max"}
_HALF = ("f16", "bf16")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass
class Helpers:
    """What the emitted text needs before it: helper names, vector types, vector functions."""

    scalars: set[str] = field(default_factory=set)
    vectors: set[tuple[DType, int]] = field(default_factory=set)
    functions: dict[str, str] = field(default_factory=dict)

    def vector(self, dtype: DType, lanes: int) -> str:
        """The vector type's name, recorded as used."""
        if lanes > 1:
            self.vectors.add((dtype, lanes))
        return c_type(dtype, lanes)

    def element(self, dtype: DType) -> str:
        """The type of one element in memory."""
        return c_type(dtype)


def literal(value: object, dtype: DType) -> str:
    """An exact C literal."""
    if dtype.kind == "bool":
        return "1" if value else "0"
    if dtype.is_int:
        v = int(value)  # type: ignore[call-overload]
        if dtype.bits < 64:
            return (
                f"(({c_type(dtype)}){v}{'u' if dtype.kind == 'uint' else ''})" if dtype.bits != 32 else _i32(v, dtype)
            )
        if v == -(2**63):
            return "(-9223372036854775807LL - 1)"
        return f"{v}ULL" if dtype.kind == "uint" else (f"{v}LL" if v >= 0 else f"({v}LL)")
    v = float(value)  # type: ignore[arg-type]
    suffix = "f" if dtype != BY_NAME["f64"] else ""
    if math.isnan(v):
        text = f'__builtin_nan{suffix}("")'
    elif math.isinf(v):
        text = f"__builtin_inf{suffix}()" if v > 0 else f"(-__builtin_inf{suffix}())"
    else:
        text = f"{v.hex()}{suffix}"
        text = f"({text})" if text.startswith("-") else text
    return text


def _i32(v: int, dtype: DType) -> str:
    if dtype.kind == "uint":
        return f"{v}u"
    return "(-2147483647 - 1)" if v == -(2**31) else (str(v) if v >= 0 else f"({v})")


def _is_zero(e: Expr) -> bool:
    """Whether a compiler will know that `e` is 0 (+0 for floats)."""
    while isinstance(e, Cast | Broadcast):
        e = e.a
    return isinstance(e, Const) and e.value == 0 and not math.copysign(1, float(e.value)) < 0


class ExprPrinter:
    """Prints expressions over the given buffers."""

    def __init__(self, buffers: Mapping[str, Buffer], helpers: Helpers) -> None:
        self.buffers = buffers
        self.helpers = helpers

    # ---- addresses -----------------------------------------------------------------------

    def address(self, array: str, index: tuple[Expr, ...]) -> str:
        """The row-major element number (a vector when one subscript is a vector)."""
        shape = self.buffers[array].shape
        lanes = max((e.lanes for e in index), default=1)
        text = "0"
        for k, e in enumerate(index):
            here = self.wide(e, lanes)
            text = here if k == 0 else f"({text} * {self.expr(shape[k])} + {here})"
        return text

    def wide(self, e: Expr, lanes: int) -> str:
        """An index expression, broadcast when it is scalar (GCC broadcasts in arithmetic)."""
        if e.lanes == lanes or lanes == 1:
            return self.expr(e)
        return self.broadcast(self.expr(e), BY_NAME["i64"], lanes)

    def broadcast(self, text: str, dtype: DType, lanes: int) -> str:
        """A vector with the scalar `text` in every lane, by a helper function; a boolean becomes all bits or none."""
        t, name = self.helpers.vector(dtype, lanes), f"splat_{c_type(dtype, lanes)}"
        x = "-(int8_t)(x != 0)" if dtype.kind == "bool" else "x"
        self.helpers.functions[name] = (
            f"static inline {t} {name}({self.helpers.element(dtype)} x) {{ return ({t}){{{', '.join([x] * lanes)}}}; }}"
        )
        return f"{name}({text})"

    # ---- expressions ---------------------------------------------------------------------

    def expr(self, e: Expr) -> str:
        """C text of an expression."""
        if isinstance(e, Const):
            text = literal(e.value, e.dtype)
            return self._from_f32(text, e.dtype) if e.dtype.name in _HALF else text
        if isinstance(e, Var):
            return e.name
        if isinstance(e, Load):
            return f"{e.array}[{self.address(e.array, e.index)}]"
        if isinstance(e, Broadcast):
            return self.broadcast(self.expr(e.a), e.dtype, e.count)
        if isinstance(e, Ramp):
            steps = ", ".join(f"{k * e.stride}" for k in range(e.count))
            return f"({self.expr(e.base)} + ({self.helpers.vector(e.dtype, e.count)}){{{steps}}})"
        if isinstance(e, VLoad):
            return self._vload(e)
        if isinstance(e, HReduce):
            return self._hreduce(e)
        if isinstance(e, Cast):
            return self._cast(e)
        if isinstance(e, Select):
            return self._select(e)
        if isinstance(e, Unary):
            return self._unary(e)
        if isinstance(e, Binary):
            return self._binary(e)
        if isinstance(e, Call):
            return self._call(e)
        raise BuildError(f"the C emitter has no rule for {type(e).__name__}")

    def _to_f32(self, text: str, dtype: DType) -> str:
        if dtype.name == "bf16":
            self.helpers.scalars.add("bf16_to_f32")
            return f"bf16_to_f32({text})"
        return f"(float)({text})"

    def _from_f32(self, text: str, dtype: DType) -> str:
        if dtype.name == "bf16":
            self.helpers.scalars.add("f32_to_bf16")
            return f"f32_to_bf16({text})"
        return f"((_Float16)({text}))"

    def _unary(self, e: Unary) -> str:
        a = self.expr(e.a)
        if e.op == "not":
            return f"(~{a})" if e.lanes > 1 else f"(!{a})"
        if e.op == "~":
            return f"(~{a})" if e.lanes > 1 else f"(({c_type(e.dtype)})~{a})"
        if e.dtype.name in _HALF:
            return self.lanewise("neg", e.dtype, e.dtype, [e.a], lambda x: self._half_unary("-", x[0], e.dtype))
        return f"(-{a})" if e.lanes > 1 else f"(({c_type(e.dtype)})-{a})"

    def _half_unary(self, op: str, a: str, dtype: DType) -> str:
        return self._from_f32(f"{op}{self._to_f32(a, dtype)}", dtype)

    def _binary(self, e: Binary) -> str:
        if e.op in ("and", "or"):
            sign = "&" if e.op == "and" else "|"
            sign = sign if e.lanes > 1 else sign * 2
            return f"({self.expr(e.a)} {sign} {self.expr(e.b)})"
        operand = e.a.dtype
        if operand.name in _HALF:
            return self.lanewise(
                e.op, e.dtype, operand, [e.a, e.b], lambda x: self._half_binary(e.op, x[0], x[1], operand, e.dtype)
            )
        if e.op in COMPARISONS and e.lanes == 1 and operand.is_int and decided_by_type(e) is not e:
            return self.expr(decided_by_type(e))  # compilers warn of such comparisons
        if e.op in COMPARISONS:
            return self._to_mask(self._compare(e), operand, e.lanes) if e.lanes > 1 else self._compare(e)
        if e.op == "-" and operand.is_float and _is_zero(e.a):
            # gcc 12 turns 0.0 - (double)i into -(double)i, which is -0 for i = 0.
            return self.lanewise("from_zero", e.dtype, operand, [e.b], lambda x: f"({x[0]} == 0 ? 0 : -{x[0]})")
        if e.op in _PLAIN and not (operand.is_int and e.op == "/"):
            text = f"({self.expr(e.a)} {e.op} {self.expr(e.b)})"
            return text if e.lanes > 1 or operand.bits > 16 else f"(({c_type(e.dtype)}){text})"
        if e.lanes > 1 and operand.kind != "bool":
            whole = self._whole_vector(e, operand)
            if whole is not None:
                return whole
        if e.op in _HELPER:
            return self.lanewise(e.op, e.dtype, operand, [e.a, e.b], lambda x: self._helper(e.op, operand, x))
        raise BuildError(f"the C emitter has no rule for '{e.op}' on {operand}")

    def _whole_vector(self, e: Binary, dtype: DType) -> str | None:
        """min, max and shifts by constants, without a loop over lanes."""
        if e.op in ("min", "max"):
            sign = "<" if e.op == "min" else ">"
            t = self.helpers.vector(dtype, e.lanes)
            m = c_vector.bits_of(dtype, e.lanes, self.helpers.vector)
            name = f"{e.op}_{t}"
            self.helpers.functions[name] = c_vector.choosing(e.op, dtype, e.lanes, name, (
                f"{{ {m} k = b {sign} a; return ({t})((k & ({m})b) | (~k & ({m})a)); }}"
            ))  # fmt: skip
            return f"{name}({self.expr(e.a)}, {self.expr(e.b)})"
        amount = e.b.a if isinstance(e.b, Broadcast) else e.b
        if e.op in ("<<", ">>") and isinstance(amount, Const):
            text = self.expr(e.a)
            return c_vector.shift_text(e.op, text, int(amount.value), dtype, e.lanes, self.helpers.vector)
        return None

    def _compare(self, e: Binary) -> str:
        """A comparison as C has it: for vectors, a mask of integers as wide as the operands."""
        op = e.op
        if e.lanes > 1 and e.a.dtype.kind == "bool":
            op = _MIRRORED.get(op, op)  # true is -1
        return f"({self.expr(e.a)} {op} {self.expr(e.b)})"

    def _mask(self, e: Expr, bits: DType) -> str:
        """A vector condition as a mask of `bits`-wide integers, by the shortest way."""
        if isinstance(e, Binary) and e.op in ("and", "or", "&", "|") and e.a.dtype.kind == "bool":
            return f"({self._mask(e.a, bits)} {'&' if e.op in ('and', '&') else '|'} {self._mask(e.b, bits)})"
        if isinstance(e, Unary) and e.op in ("not", "~"):
            return f"(~{self._mask(e.a, bits)})"
        same_width = isinstance(e, Binary) and e.a.dtype.bits == bits.bits and e.a.dtype.name not in _HALF
        if isinstance(e, Binary) and e.op in COMPARISONS and same_width and e.a.dtype.kind != "bool":
            return self._compare(e)
        return c_vector.conversion(self.expr(e), BY_NAME["i8"], bits, e.lanes, self.helpers.vector)

    def _helper(self, op: str, dtype: DType, x: list[str]) -> str:
        name = f"{_HELPER[op]}_{dtype.name if dtype.kind != 'bool' else 'u8'}"
        self.helpers.scalars.add(name)
        return f"{name}({', '.join(x)})"

    def _half_binary(self, op: str, a: str, b: str, operand: DType, result: DType) -> str:
        x, y = self._to_f32(a, operand), self._to_f32(b, operand)
        if op in COMPARISONS:
            return f"({x} {op} {y})"
        text = f"({x} {op} {y})" if op in _PLAIN else self._helper(op, f32, [x, y])
        return self._from_f32(text, result)

    def _whole_call(self, e: Call, dtype: DType) -> str | None:
        """A Call on vectors without a loop over lanes."""
        lanes = e.lanes
        if e.fn == "bitcast":
            return f"(({self.helpers.vector(e.dtype, lanes)}){self.expr(e.args[0])})"
        if e.fn == "isnan":
            a = self.expr(e.args[0])
            name = f"isnan_{self.helpers.vector(dtype, lanes)}"
            mask, t = self.helpers.vector(BY_NAME["bool_"], lanes), c_type(dtype, lanes)
            narrow = self._to_mask("(a != a)", dtype, lanes)
            self.helpers.functions[name] = f"static inline {mask} {name}({t} a) {{ return {narrow}; }}"
            return f"{name}({a})"
        if e.fn in ("fma", "sqrt", "floor", "ceil", "trunc", "round"):
            name = f"{e.fn}_{self.helpers.vector(dtype, lanes)}"
            text = c_vector.machine_function(e.fn, dtype, lanes, name)
            if text is None:
                return None
            self.helpers.functions[name] = text
            self.helpers.scalars.add(f"{e.fn}_{dtype.name}")
            return f"{name}({', '.join(self.expr(a) for a in e.args)})"
        return c_vector.call_text(e.fn, dtype, lanes, [self.expr(a) for a in e.args], self.helpers.vector)

    def _call(self, e: Call) -> str:
        operand = e.args[0].dtype
        if e.lanes > 1 and operand.name not in _HALF:
            whole = self._whole_call(e, operand)
            if whole is not None:
                return whole

        def one(x: list[str]) -> str:
            if operand.name in _HALF:
                wide = [self._to_f32(t, operand) for t in x]
                name = f"{e.fn}_f32"
                self.helpers.scalars.add(name)
                text = f"{name}({', '.join(wide)})"
                return text if e.dtype.kind == "bool" else self._from_f32(text, e.dtype)
            name = f"{e.fn}_{e.dtype.name if e.fn == 'bitcast' else operand.name}"
            self.helpers.scalars.add(name)
            return f"{name}({', '.join(x)})"

        return self.lanewise(e.fn, e.dtype, operand, list(e.args), one)

    def _cast(self, e: Cast) -> str:
        to, source, lanes = e.dtype, e.a.dtype, e.lanes
        a = self.expr(e.a)
        if to == source:
            return a
        if lanes > 1 and not {to.name, source.name} & set(_HALF) and "bool" not in (to.kind, source.kind):
            return self._converted(a, source, to, lanes)

        def one(x: list[str]) -> str:
            text = x[0]
            if source.name in _HALF:
                text = self._to_f32(text, source)
            if to.kind == "bool":
                return f"({text} != 0)"
            if to.name in _HALF:
                return self._from_f32(f"(float)({text})", to)
            return f"(({c_type(to)}){text})"

        return self.lanewise(f"cast_{source.name}_{to.name}", to, source, [e.a], one)

    def _converted(self, text: str, source: DType, to: DType, lanes: int) -> str:
        """A vector of numbers as one of another type."""
        name = f"widened_{source.name}_{self.helpers.vector(to, lanes)}"
        function = c_vector.widening(source, to, lanes, name)
        steps = c_vector.conversion(text, source, to, lanes, self.helpers.vector)
        if function is None:
            return steps
        self.helpers.functions[name] = function
        return f"{name}({text})"

    def _select(self, e: Select) -> str:
        a, b = self.expr(e.a), self.expr(e.b)
        if e.cond.lanes == 1:
            return f"({self.expr(e.cond)} ? {a} : {b})"
        t = self.helpers.vector(e.dtype, e.lanes)
        bits = BY_NAME[f"i{max(8, e.dtype.bits)}"]
        m = self.helpers.vector(bits, e.lanes)
        name = f"select_{t}"
        self.helpers.functions[name] = (
            f"static inline {t} {name}({m} k, {t} a, {t} b) {{ return ({t})((k & ({m})a) | (~k & ({m})b)); }}"
        )
        return f"{name}({self._mask(e.cond, bits)}, {a}, {b})"

    def _to_mask(self, text: str, operand: DType, lanes: int) -> str:
        assert operand.bytes * 8 in MASK_BITS
        return c_vector.conversion(text, BY_NAME[f"i{operand.bytes * 8}"], BY_NAME["bool_"], lanes, self.helpers.vector)

    # ---- lane by lane --------------------------------------------------------------------

    def lanewise(self, name: str, result: DType, operand: DType, args: list[Expr], one) -> str:  # type: ignore[no-untyped-def]
        """`one` applied to scalars, or inside a generated function to every lane."""
        lanes = max(a.lanes for a in args)
        if lanes == 1:
            return str(one([self.expr(a) for a in args]))
        safe = "".join(_SYMBOL.get(ch, ch) for ch in name)
        fn = f"{safe}_v{lanes}_{operand.name}_{result.name}"
        t = self.helpers.vector(result, lanes)
        types = [self.helpers.vector(a.dtype, lanes) for a in args]
        letters = "abc"[: len(args)]
        lane_args = [f"({p}[l] & 1)" if a.dtype.kind == "bool" else f"{p}[l]" for p, a in zip(letters, args)]
        body = one(lane_args)
        body = f"-(int8_t)({body} != 0)" if result.kind == "bool" else body
        parameters = ", ".join(f"{ty} {p}" for ty, p in zip(types, letters))
        self.helpers.functions[fn] = (
            f"static inline {t} {fn}({parameters}) {{ {t} r; "
            f"for (int l = 0; l < {lanes}; l++) r[l] = {body}; return r; }}"
        )
        return f"{fn}({', '.join(self.expr(a) for a in args)})"

    def _vload(self, e: VLoad) -> str:
        t = self.helpers.vector(e.dtype, e.count)
        ramp = e.index[-1] if e.index else None
        contiguous = isinstance(ramp, Ramp) and ramp.stride == 1 and all(i.lanes == 1 for i in e.index[:-1])
        if contiguous and isinstance(ramp, Ramp):
            at = self.address(e.array, (*e.index[:-1], ramp.base))
            if e.mask is None and e.dtype.kind != "bool":
                return f"(*(const {t}_u *)&{e.array}[{at}])"
        if (
            isinstance(ramp, Ramp) and ramp.stride in (-2, -1, 2) and all(i.lanes == 1 for i in e.index[:-1])
            and e.mask is None and e.dtype.kind != "bool"
        ):  # fmt: skip
            return self._near(e, ramp)
        rows = columns.window(e, self.buffers[e.array])
        if rows is not None and e.mask is None and e.dtype.kind != "bool":
            return self._column(e, rows)
        fn, arguments = self._memory_function("load", e.array, e.index, e.dtype, e.count, e.mask)
        return f"{fn}({arguments})"

    def _near(self, e: VLoad, ramp: Ramp) -> str:
        """Lanes one element apart backwards, or two apart: what lies between is loaded, too, and left out."""
        t, n, s = self.helpers.vector(e.dtype, e.count), e.count, ramp.stride
        low = min(0, s * (n - 1))
        places = [s * lane for lane in range(n)]
        name = f"load_{abs(s)}_{'back' if s < 0 else 'apart'}_{t}"
        # Two vectors share the element in the middle: so none reaches beyond the last lane.
        order = [p - low if p - low < n else p - low + 1 for p in places]
        lines = [f"  const {t} a = *(const {t}_u *)(p + {low});"]
        if abs(s) == 2:
            lines.append(f"  const {t} b = *(const {t}_u *)(p + {low + n - 1});")
        lines.append(
            f"  return __builtin_shufflevector(a, {'b' if abs(s) == 2 else 'a'}, {', '.join(map(str, order))});"
        )
        self.helpers.functions[name] = _shuffled(t, name, self.helpers.element(e.dtype), lines, places)
        return f"{name}(&{e.array}[{self.address(e.array, (*e.index[:-1], ramp.base))}])"

    def _column(self, e: VLoad, rows: columns.Window) -> str:
        """A column of neighbouring rows, by shuffles where the compiler has them."""
        t = self.helpers.vector(e.dtype, e.count)
        name = f"column_{rows.at}_of_{rows.width}_{rows.apart}_apart_{t}"
        row = self.helpers.vector(e.dtype, rows.width)
        lines: list[str] = []

        def named(type_: str, text: str) -> str:
            lines.append(f"  const {type_} x{len(lines)} = {text};")
            return f"x{len(lines) - 1}"

        def shuffle(a: str, b: str | None, width: int, order: Sequence[int]) -> str:
            picks = f"__builtin_shufflevector({a}, {b or a}, {', '.join(map(str, order))})"
            return named(self.helpers.vector(e.dtype, len(order)), picks)

        parts = [named(row, f"*(const {row}_u *)(p + {k * rows.apart})") for k in range(e.count)]
        found = columns.network(parts, shuffle, 8 * e.dtype.bytes, rows.width, rows.at)
        places = [k * rows.apart + rows.at for k in range(e.count)]
        self.helpers.functions[name] = _shuffled(
            t, name, self.helpers.element(e.dtype), [*lines, f"  return {found};"], places
        )
        first = tuple(x.base if isinstance(x, Ramp) else x for x in (*e.index[:-1], const_int(rows.start)))
        return f"{name}(&{e.array}[{self.address(e.array, first)}])"

    def store(self, array: str, index: tuple[Expr, ...], value: Expr, mask: Expr | None) -> str:
        """A statement's text (without the semicolon)."""
        buffer = self.buffers[array]
        lanes = max(value.lanes, *(i.lanes for i in index), 1) if index else value.lanes
        if lanes == 1:
            return f"{array}[{self.address(array, index)}] = {self.expr(value)}"
        t = self.helpers.vector(buffer.dtype, lanes)
        ramp = index[-1]
        if (
            isinstance(ramp, Ramp) and ramp.stride == 1 and mask is None and buffer.dtype.kind != "bool"
            and all(i.lanes == 1 for i in index[:-1])
        ):  # fmt: skip
            at = self.address(array, (*index[:-1], ramp.base))
            return f"*({t}_u *)&{array}[{at}] = {self.expr(value)}"
        fn, arguments = self._memory_function("store", array, index, buffer.dtype, lanes, mask)
        return f"{fn}({arguments}, {self.expr(value)})"

    def _memory_function(
        self, what: str, array: str, index: tuple[Expr, ...], dtype: DType, lanes: int, mask: Expr | None
    ) -> tuple[str, str]:
        """A function that loads or stores lanes which are not one piece of memory, or under a mask; its arguments.

        Where lanes are a number of elements apart that all share, the function takes the first one and that number.
        """
        t, element = self.helpers.vector(dtype, lanes), self.helpers.element(dtype)
        ramps = [k for k, e in enumerate(index) if isinstance(e, Ramp)]
        name = f"{what}{'_masked' if mask is not None else ''}"
        if len(ramps) == 1 and all(e.lanes == 1 or isinstance(e, (Ramp, Broadcast)) for e in index):
            first = tuple(e.base if isinstance(e, Ramp) else e.a if isinstance(e, Broadcast) else e for e in index)
            arguments = f"{array}, {self.address(array, first)}"
            ramp = index[ramps[0]]
            assert isinstance(ramp, Ramp)
            inner = self.buffers[array].shape[ramps[0] + 1 :]
            if ramp.stride == 1 and not inner:
                name, at, place = f"{name}_row_{t}", "int64_t at", "at + {}"
            else:
                name, at, place = f"{name}_apart_{t}", "int64_t at, int64_t step", "at + {} * step"
                arguments += f", {self._apart(ramp.stride, inner)}"
        else:
            name, at, place = f"{name}_{t}", f"{self.helpers.vector(BY_NAME['i64'], lanes)} at", "at[{}]"
            arguments = f"{array}, {self.address(array, index)}"
        parameters = f"{'const ' if what == 'load' else ''}{element} *p, {at}"
        if mask is not None:
            parameters += f", {self.helpers.vector(BY_NAME['bool_'], lanes)} m"
            arguments += f", {self.expr(mask)}"

        def read(lane: object) -> str:
            text = f"p[{place.format(lane)}]"
            return f"-(int8_t)({text} != 0)" if dtype.kind == "bool" else text

        each = f"for (int l = 0; l < {lanes}; l++) {'if (m[l]) ' if mask is not None else ''}"
        if what == "store":
            value = "(v[l] & 1)" if dtype.kind == "bool" else "v[l]"
            text = f"static inline void {name}({parameters}, {t} v) {{ {each}p[{place.format('l')}] = {value}; }}"
        elif mask is None:  # gcc makes vectors of this, and stores of single lanes of a loop
            text = f"static inline {t} {name}({parameters}) {{ return ({t}){{{', '.join(map(read, range(lanes)))}}}; }}"
        else:
            text = f"static inline {t} {name}({parameters}) {{ {t} r = {{0}}; {each}r[l] = {read('l')}; return r; }}"
        self.helpers.functions[name] = text
        return name, arguments

    def _apart(self, stride: int, inner: tuple[Expr, ...]) -> str:
        """How many elements lie between lanes that are `stride` apart along the axis before `inner`."""
        number: Expr = Const(stride, i64)
        for e in inner:
            number = Binary("*", number, e if e.dtype == i64 else Cast(e, i64), i64)
        return self.expr(simplify_expr(number))

    def _hreduce(self, e: HReduce) -> str:
        lanes, t = e.a.lanes, self.helpers.vector(e.a.dtype, e.a.lanes)
        element = self.helpers.element(e.dtype)
        a, b = Var("x", e.dtype), Var("y", e.dtype)
        if e.op in ("and", "or"):
            step = f"x {'&' if e.op == 'and' else '|'} y"
        else:
            step = self.expr(Binary(e.op, a, b, e.dtype))
        safe = "".join(_SYMBOL.get(ch, ch) for ch in e.op)
        name = f"reduce_{safe}_{t}"
        read = "(v[l] & 1)" if e.dtype.kind == "bool" else "v[l]"
        self.helpers.functions[name] = (
            f"static inline {element} {name}({t} v) {{ {element} r[{lanes}]; "
            f"for (int l = 0; l < {lanes}; l++) r[l] = {read}; "
            f"for (int h = {lanes // 2}; h > 0; h /= 2) for (int l = 0; l < h; l++) "
            f"{{ {element} x = r[l], y = r[l + h]; r[l] = {step}; }} return r[0]; }}"
        )
        return f"{name}({self.expr(e.a)})"


def _shuffled(t: str, name: str, element: str, lines: Sequence[str], places: Sequence[int]) -> str:
    """A function that loads lanes by shuffles, or where the compiler has none from their places behind `p`."""
    return "\n".join((
        f"static inline {t} {name}(const {element} *p) {{", "#if defined(__clang__) || __GNUC__ >= 12", *lines, "#else",
        f"  return ({t}){{{', '.join(f'p[{k}]' for k in places)}}};", "#endif", "}",
    ))  # fmt: skip


_SYMBOL = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "and", "|": "or", "^": "xor",
    "<": "lt", ">": "gt", "=": "eq", "!": "n",
}  # fmt: skip
