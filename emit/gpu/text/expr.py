"""Loop-IR expressions as text of a GPU language.

Scalars are those of standard C (`polyc.emit.c.plain`). A vector is a struct of its lanes, aligned to its
size: reading or writing one whole is one wide access of memory, everything else a small generated
function that the compiler unrolls over the lanes.

What a dialect has no text for is a `BuildError`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

from polyc.emit.c.expr import Helpers, literal
from polyc.emit.c.plain import PLAIN, PlainPrinter
from polyc.emit.gpu.text.dialects import GpuDialect
from polyc.emit.gpu.text.warpgroup_texts import warpgroup_texts
from polyc.emit.loop_ir.loops import (
    Broadcast,
    Buffer,
    HReduce,
    Ramp,
    Store,
    VLoad,
    WarpgroupProduct,
    WarpProduct,
    WarpReduce,
)
from polyc.poly.dtypes import BY_NAME, DType, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Expr, Load, Unary, Var

_LETTERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "&": "bitand", "|": "bitor", "^": "xor",
    "<": "lt", ">": "gt", "=": "eq", "!": "n", "~": "not",
}  # fmt: skip


def struct_name(dtype: DType, lanes: int) -> str:
    """The type of a vector."""
    return PLAIN[dtype.name] if lanes == 1 else f"v{lanes}_{dtype.name}"


def structs(vectors: set[tuple[DType, int]], dialect: GpuDialect) -> list[str]:
    """Definitions of the vector types, sorted."""
    lines = []
    for dtype, lanes in sorted(vectors, key=lambda v: (v[0].name, v[1])):
        size = lanes * dtype.bytes
        aligned = dialect.aligned.format(min(16, size & -size))
        lines.append(f"typedef struct {aligned} {{ {PLAIN[dtype.name]} s[{lanes}]; }} {struct_name(dtype, lanes)};")
    return lines


class GpuPrinter(PlainPrinter):
    """Prints expressions over the given buffers in one dialect."""

    def __init__(self, buffers: Mapping[str, Buffer], helpers: Helpers, dialect: GpuDialect) -> None:
        super().__init__(buffers, helpers)
        self.dialect = dialect
        self.widest: dict[str, int] = {}  # bytes of the widest access to an array
        self.data: set[str] = set()  # i64 variables whose values come from memory
        self.narrow = False  # index arithmetic fits in 32 bits

    def bind(self, name: str, value: Expr) -> None:
        """Note what a Let binds."""
        if not self._indexing(value):
            self.data.add(name)

    def _indexing(self, e: Expr) -> bool:
        """Whether an expression is made of sizes and loop variables only: it never overflows."""
        if isinstance(e, Var):
            return e.name not in self.data
        return isinstance(e, Const | Binary | Unary | Ramp | Broadcast) and all(map(self._indexing, e.children()))

    def index_type(self, e: Expr) -> str | None:
        """The type of an index expression in the text, None for other expressions."""
        return ("int32_t" if self.narrow else "int64_t") if e.dtype == i64 and self._indexing(e) else None

    # ---- scalars ----

    def expr(self, e: Expr) -> str:
        """The text of an expression, scalar or vector; functions that it calls are defined once, above the kernel."""
        if self.narrow and e.dtype == i64 and e.lanes == 1 and isinstance(e, Const | Binary | Unary):
            if self._indexing(e):
                return self._narrowed(e)
        if self.wrapping and e.dtype == i64 and isinstance(e, Binary | Unary) and self._indexing(e):
            return self.index(e)
        if isinstance(e, Const):
            return self._literal(e)
        if isinstance(e, Var):
            return e.name
        if isinstance(e, HReduce):
            return self._hreduce(e)
        if e.lanes > 1:
            return self._vector(e)
        return super().expr(e)

    def _narrowed(self, e: Expr) -> str:
        """An index expression in 32 bits."""
        if isinstance(e, Const):
            return str(e.value) if e.value >= 0 else f"({e.value})"
        if isinstance(e, Var):
            return e.name
        if isinstance(e, Unary):
            return f"(-{self._narrowed(e.a)})"
        assert isinstance(e, Binary)
        a, b = self._narrowed(e.a), self._narrowed(e.b)
        if e.op in "+-*":
            return f"({a} {e.op} {b})"
        name = {"//": "floordiv", "%": "mod"}.get(e.op, e.op) + "_i32"
        self.helpers.scalars.add(name)
        return f"{name}({a}, {b})"

    def _literal(self, e: Const) -> str:
        if e.dtype.is_float:
            value = float(e.value)
            wide = "f64" if e.dtype.name == "f64" else "f32"
            if math.isnan(value):
                text = self.dialect.nan[wide]
            elif math.isinf(value):
                text = self.dialect.infinity[wide] if value > 0 else f"(-{self.dialect.infinity[wide]})"
            else:
                text = literal(value, e.dtype)
            return self._from_f32(text, e.dtype) if e.dtype.bits == 16 else text
        text = literal(e.value, e.dtype)
        return text.replace("LL", self.dialect.long_suffix) if e.dtype.bits == 64 else text

    # ---- vectors ----

    def _type(self, dtype: DType, lanes: int) -> str:
        self.helpers.vector(dtype, lanes)
        return struct_name(dtype, lanes)

    def _define(self, name: str, result: str, parameters: list[str], body: str) -> None:
        text = f"{self.dialect.inline} {result} {name}({', '.join(parameters)}) {{ {body} }}"
        if self.helpers.functions.setdefault(name, text) != text:
            raise BuildError(f"two different functions would be called {name}")

    def _vector(self, e: Expr) -> str:
        """A vector expression: a call of a function over its operands."""
        lanes, t = e.lanes, self._type(e.dtype, e.lanes)
        if isinstance(e, Broadcast):
            name = f"splat_{t}"
            self._define(name, t, [f"{PLAIN[e.dtype.name]} a"], self._each(t, lanes, "a"))
            return f"{name}({self.expr(e.a)})"
        if isinstance(e, Ramp):
            name = f"ramp_{t}"
            body = self._each(t, lanes, "a + stride * l")
            self._define(name, t, ["int64_t a", "int64_t stride"], body)
            return f"{name}({self.expr(e.base)}, {e.stride})"
        if isinstance(e, VLoad):
            return self._load(e)
        if isinstance(e, Load):
            raise BuildError(f"the load of '{e.array}' has a vector subscript")
        return self._lanewise(e, t)

    def _each(self, t: str, lanes: int, text: str) -> str:
        return f"{t} r; for (int l = 0; l < {lanes}; l++) r.s[l] = {text}; return r;"

    def _lanewise(self, e: Expr, t: str) -> str:
        """An operator on vectors (some operands may be scalars): the scalar text for each lane."""
        children = e.children()
        names = [f"{letter}.s[l]" if c.lanes > 1 else letter for letter, c in zip("abcd", children)]
        one = e.with_children(tuple(Var(n, c.dtype) for n, c in zip(names, children)))
        before, self.wrapping = self.wrapping, True
        body = self._each(t, e.lanes, super().expr(one))
        self.wrapping = before
        what = "".join(_LETTERS.get(ch, ch) for ch in str(getattr(e, "op", getattr(e, "fn", type(e).__name__.lower()))))
        kinds = [f"{c.dtype.name}{'x' if c.lanes == 1 else ''}" for c in children]
        name = "_".join([what, *kinds, "to", t])
        parameters = [f"{struct_name(c.dtype, c.lanes)} {letter}" for letter, c in zip("abcd", children)]
        for c in children:
            self._type(c.dtype, c.lanes)
        self._define(name, t, parameters, body)
        return f"{name}({', '.join(self.expr(c) for c in children)})"

    # ---- memory ----

    def _whole(self, array: str, index: tuple[Expr, ...], mask: Expr | None, lanes: int, dtype: DType) -> str | None:
        """The element at which one wide access starts, None when lanes are accessed one by one."""
        ramp = index[-1] if index else None
        if not isinstance(ramp, Ramp) or ramp.stride != 1 or mask is not None or any(i.lanes > 1 for i in index[:-1]):
            return None
        at = self.address(array, (*index[:-1], ramp.base))
        size = lanes * dtype.bytes
        if size not in (2, 4, 8, 16):
            return None
        self.widest[array] = max(size, self.widest.get(array, 1))
        return f"&{array}[{at}]"

    def _stride(self, array: str, index: tuple[Expr, ...], mask: Expr | None) -> tuple[str, str] | None:
        """First element and stride of an access to elements at equal distances, else None."""
        ramp = index[-1] if index else None
        if not isinstance(ramp, Ramp) or mask is not None or any(i.lanes > 1 for i in index[:-1]):
            return None
        return f"&{array}[{self.address(array, (*index[:-1], ramp.base))}]", str(ramp.stride)

    def _load(self, e: VLoad) -> str:
        t, space = self._type(e.dtype, e.count), self.dialect.spaces[self.buffers[e.array].space]
        pointer = f"{space}const {PLAIN[e.dtype.name]} *p"
        suffix = f"{t}_{space.strip('_ ') or 'p'}"
        whole = self._whole(e.array, e.index, e.mask, e.count, e.dtype)
        if whole is not None:
            self._define(f"load_{suffix}", t, [pointer], self._wide_load(t, e.dtype, e.count, space))
            return f"load_{suffix}({whole})"
        strided = self._stride(e.array, e.index, e.mask)
        if strided is not None:
            self._define(f"strided_{suffix}", t, [pointer, "int stride"], self._each(t, e.count, "p[l * stride]"))
            return f"strided_{suffix}({', '.join(strided)})"
        at = self._type(BY_NAME["i64"], e.count)
        arguments, parameters = [e.array, self._addresses(e.array, e.index, e.count)], [pointer, f"{at} at"]
        value = "p[at.s[l]]"
        name = f"gather_{suffix}"
        if e.mask is not None:
            name, value = f"gather_masked_{suffix}", "m.s[l] ? p[at.s[l]] : 0"
            parameters.append(f"{self._type(BY_NAME['bool_'], e.count)} m")
            arguments.append(self.expr(e.mask))
        self._define(name, t, parameters, self._each(t, e.count, value))
        return f"{name}({', '.join(arguments)})"

    def _wide_load(self, t: str, dtype: DType, lanes: int, space: str) -> str:
        if self.dialect.name == "cuda":
            return f"return *(const {t} *)p;"
        cl = _OPENCL[dtype.name]
        picks = ", ".join(f"x.s{l:x}" for l in range(lanes))
        return f"{cl}{lanes} x = vload{lanes}(0, p); {t} r = {{{{{picks}}}}}; return r;"

    def _wide_store(self, t: str, dtype: DType, lanes: int) -> str:
        if self.dialect.name == "cuda":
            return f"*({t} *)p = v;"
        picks = ", ".join(f"v.s[{l}]" for l in range(lanes))
        return f"vstore{lanes}(({_OPENCL[dtype.name]}{lanes})({picks}), 0, p);"

    def _addresses(self, array: str, index: tuple[Expr, ...], lanes: int) -> str:
        """Row-major element numbers, one a lane, as a vector of i64."""
        shape = self.buffers[array].shape
        total: Expr | None = None
        for k, e in enumerate(index):
            here = e if e.lanes > 1 else Broadcast(e, lanes, i64)
            scaled = None if total is None else Binary("*", total, Broadcast(shape[k], lanes, i64), i64)
            total = here if scaled is None else Binary("+", scaled, here, i64)
        assert total is not None
        return self.expr(total)

    def store(self, array: str, index: tuple[Expr, ...], value: Expr, mask: Expr | None) -> str:
        """The text of a store, without its semicolon: an assignment, or a call where there are lanes."""
        buffer = self.buffers[array]
        lanes = max(value.lanes, *(i.lanes for i in index), 1) if index else value.lanes
        if lanes == 1:
            return f"{array}[{self.address(array, index)}] = {self.expr(value)}"
        t, space = self._type(buffer.dtype, lanes), self.dialect.spaces[buffer.space]
        pointer, suffix = f"{space}{PLAIN[buffer.dtype.name]} *p", f"{t}_{space.strip('_ ') or 'p'}"
        if value.lanes == 1:
            value = Broadcast(value, lanes, value.dtype)
        whole = self._whole(array, index, mask, lanes, buffer.dtype)
        if whole is not None:
            self._define(f"store_{suffix}", "void", [pointer, f"{t} v"], self._wide_store(t, buffer.dtype, lanes))
            return f"store_{suffix}({whole}, {self.expr(value)})"
        strided = self._stride(array, index, mask)
        if strided is not None:
            body = f"for (int l = 0; l < {lanes}; l++) p[l * stride] = v.s[l];"
            self._define(f"store_strided_{suffix}", "void", [pointer, "int stride", f"{t} v"], body)
            return f"store_strided_{suffix}({', '.join(strided)}, {self.expr(value)})"
        at = self._type(BY_NAME["i64"], lanes)
        parameters, guard, name = [pointer, f"{at} at", f"{t} v"], "", f"scatter_{suffix}"
        arguments = [array, self._addresses(array, index, lanes), self.expr(value)]
        if mask is not None:
            name, guard = f"scatter_masked_{suffix}", "if (m.s[l]) "
            parameters.append(f"{self._type(BY_NAME['bool_'], lanes)} m")
            arguments.append(self.expr(mask))
        self._define(name, "void", parameters, f"for (int l = 0; l < {lanes}; l++) {guard}p[at.s[l]] = v.s[l];")
        return f"{name}({', '.join(arguments)})"

    def copy(self, s: Store) -> str:
        """An asynchronous copy; in a language without them an ordinary one, which is in place at once."""
        if self.dialect.begin_copy is None:
            return self.store(s.array, s.index, s.value, s.mask)
        assert isinstance(s.value, Load | VLoad)
        size = s.value.lanes * s.value.dtype.bytes
        if size < 4:
            raise BuildError(f"there is no asynchronous copy of {size} bytes to '{s.array}'")
        ends = [(s.array, s.index), (s.value.array, s.value.index)]
        places = []
        for array, index in ends:
            first = tuple(i.base if isinstance(i, Ramp) else i for i in index)
            places.append(f"&{array}[{self.address(array, first)}]")
            self.widest[array] = max(size, self.widest.get(array, 1))
        name = f"begin_copy_{size}"
        self.helpers.functions[name] = self.dialect.begin_copy.replace("SIZE", str(size)).replace(
            "CACHE", "cg" if size == 16 else "ca"
        )
        return f"{name}({', '.join(places)})"

    def product(self, s: WarpProduct, x: str, y: str) -> str:
        """A product by tensor cores; `x` and `y` are the thread's place in its warp."""
        kind = s.dtype.name
        if kind not in self.dialect.warp_product:
            raise BuildError(f"{self.dialect.name} has no tensor cores: compile for this target, not only print")
        m, n = s.tiles
        if n % 2:
            raise BuildError(f"a warp product of {m} x {n} tiles: matrices are loaded two columns of tiles at a time")
        name = f"warp_product_{'tf32' if kind == 'f32' else kind}_{m}x{n}"
        values = (("NAME", name), ("ROWS", str(m)), ("COLUMNS", str(n)), ("TYPE", kind))
        if kind != "f32":
            self.helpers.scalars.add(f"{kind}_to_f32")
        texts = {
            "tensor": self.dialect.matrix_loads,  # these two in the order of their names, as texts have them
            f"tensor_{kind}": self.dialect.multiply[kind],
            name: self.dialect.warp_product[kind],
        }
        for key, text in texts.items():
            self.helpers.functions[key] = reduce(lambda t, v: t.replace(*v), values, text)
        places = []
        for array, index in ((s.left, s.left_index), (s.right, s.right_index)):
            places += [f"&{array}[{self.address(array, index)}]", self.index(self.buffers[array].shape[-1])]
        return f"{name}({', '.join([s.acc, *places, x, y])})"

    def warpgroup_product(self, s: WarpgroupProduct, x: str, y: str, z: str) -> str:
        """A product by the tensor cores of sm_90a; `x`, `y` and `z` are the thread."""
        self.helpers.scalars.add(f"{s.dtype.name}_to_f32")
        texts = warpgroup_texts(s.dtype.name, s.columns, s.steps)
        self.helpers.functions |= texts
        places = []
        for array, index in ((s.left, s.left_index), (s.right, s.right_index)):
            places += [f"&{array}[{self.address(array, index)}]", self.index(self.buffers[array].shape[1])]
        return f"{list(texts)[-1]}({', '.join([s.acc, *places, x, y, z])})"

    def warp_reduce(self, s: WarpReduce) -> str:
        """A combination across a warp, in the order that the IR says."""
        if self.dialect.exchange is None:
            raise BuildError(f"{self.dialect.name} has no shuffles: compile for this target, not only print")
        element = PLAIN[s.dtype.name]
        step = super().expr(Binary(s.op, Var("a", s.dtype), Var("b", s.dtype), s.dtype))
        name = f"warp_{''.join(_LETTERS.get(ch, ch) for ch in s.op)}_{s.dtype.name}_{s.width}"
        other = self.dialect.exchange.format("a", "d")
        loop = f"for (int d = {s.width // 2}; d > 0; d /= 2) {{ {element} b = {other}; a = {step}; }} return a;"
        self._define(name, element, [f"{element} a"], loop)
        place = f"{s.array}[{self.address(s.array, s.index)}]"
        return f"{place} = {name}({place})"

    def _hreduce(self, e: HReduce) -> str:
        """Halves combined pairwise, as the IR says."""
        lanes, t, element = e.a.lanes, self._type(e.a.dtype, e.a.lanes), PLAIN[e.dtype.name]
        step = super().expr(Binary(e.op, Var("v.s[l]", e.dtype), Var("v.s[l + h]", e.dtype), e.dtype))
        name = f"reduce_{''.join(_LETTERS.get(ch, ch) for ch in e.op)}_{t}"
        body = f"for (int h = {lanes // 2}; h > 0; h /= 2) for (int l = 0; l < h; l++) v.s[l] = {step}; return v.s[0];"
        self._define(name, element, [f"{t} v"], body)
        return f"{name}({self.expr(e.a)})"


_OPENCL = {
    "bool_": "uchar", "i8": "char", "u8": "uchar", "i16": "short", "u16": "ushort", "i32": "int", "u32": "uint",
    "i64": "long", "u64": "ulong", "f16": "ushort", "bf16": "ushort", "f32": "float", "f64": "double",
}  # fmt: skip
