"""Loop-IR expressions to LLVM instructions: addresses, loads, lazy selects, vectors.

What has no instructions here is a `BuildError`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd

from polyc.emit.llvm import columns, lane_indices
from polyc.emit.llvm.arith import Arithmetic
from polyc.emit.llvm.code import FunctionText
from polyc.emit.llvm.counted_lanes import CountedLanes
from polyc.emit.llvm.types import Value, constant, memory_type, scalar_type, suffix, vector
from polyc.emit.loop_ir.linear import linear
from polyc.emit.loop_ir.loops import Broadcast, Buffer, HReduce, Ramp, VLoad
from polyc.emit.loop_ir.ranges import Ranges, of_variables
from polyc.poly.dtypes import DType, bool_, i64, u8
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, walk
from polyc.poly.records import dataclass
from polyc.poly.target import MASKED_STORES

NEAR = 4  # elements at most this far apart are loaded contiguously and shuffled, not gathered

WORD, TOP_BITS = 32, 0x80808080  # of four bytes

ALIGNED = 64
"""Of which the begin of every array that code makes, or a plan places, is a multiple, in bytes."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a buffer lives: its pointer and its element strides (ints where constant)."""

    buffer: Buffer
    pointer: str
    strides: tuple[int | Value, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A place to access: `pointer` to the first lane. `offsets` (in elements from `pointer`, a
    vector) for gathers and scatters, `step` their constant distance if they have one; `reversed`
    for a run with stride -1 (pointer = lowest)."""

    pointer: str
    offsets: Value | None = None
    reversed: bool = False
    step: int | None = None


class Expressions:
    """Emits expressions into one LLVM function. `sums`: subscripts are written as sums of multiples, as LLVM's passes
    for common values would make them; where all passes run they start from what the loops say."""

    def __init__(self, f: FunctionText, fast: bool, sums: bool) -> None:
        self.f = f
        self.sums = sums
        self.arith = Arithmetic(f, fast)
        self.env: dict[str, Value] = {}
        self.storage: dict[str, Storage] = {}
        self.ranges = Ranges()
        self.counted: CountedLanes | None = None  # of the loop around
        self._loaded: dict[tuple[object, ...], Value] = {}
        self._active: Value | None = None  # lanes whose loads are wanted, inside a vector Select

    # ---- entry points ----

    def value(self, e: Expr) -> Value:
        """The value of a whole right-hand side or condition."""
        self._loaded = {}
        return self.expr(e)

    def bound(self, e: Expr) -> Value:
        """A loop bound: evaluated between statements, so loads of earlier ones are stale."""
        self._loaded = {}
        return self.index(e)

    def index(self, e: Expr) -> Value:
        """A subscript, bound or size, as i64."""
        self.arith.subscript += 1
        v = self.expr(e)
        if v.dtype != i64:
            v = self.arith.cast(v, i64)
        self.arith.subscript -= 1
        return v

    def expr(self, e: Expr) -> Value:
        """Dispatch on the node type."""
        if isinstance(e, Const):
            return constant(e.value, e.dtype)
        if isinstance(e, Var):
            if e.name not in self.env:
                raise BuildError(f"the loop IR uses the unbound variable '{e.name}'")
            return self.env[e.name]
        if isinstance(e, Load):
            return self._load(e)
        if isinstance(e, VLoad):
            return self._vload(e)
        if isinstance(e, Binary):
            return self._binary(e)
        if isinstance(e, Select):
            return self._select(e)
        if isinstance(e, Cast):
            few = None
            if e.dtype.is_float:
                few = lane_indices.narrow(e.a, self.expr, self.arith, self.ranges, self.counted)
            return self.arith.cast(few or self.expr(e.a), e.dtype)
        if isinstance(e, Unary):
            return self.arith.unary(e.op, self.expr(e.a))
        if isinstance(e, Call):
            return self.arith.intrinsic(e.fn, [self.expr(a) for a in e.args], e.dtype)
        if isinstance(e, Broadcast):
            return self.arith.broadcast(self.expr(e.a), e.count)
        if isinstance(e, Ramp):
            return self.arith.ramp(self.expr(e.base), e.stride, e.count)
        if isinstance(e, HReduce):
            return self.arith.reduce(e.op, self.expr(e.a))
        raise BuildError(f"LLVM IR has no form for the loop-IR expression {type(e).__name__}")

    # ---- operators ----

    def _binary(self, e: Binary) -> Value:
        if e.op in ("and", "or"):
            return self._logical(e)
        a = self.expr(e.a)
        if e.op in ("//", "%") and e.dtype.is_int and isinstance(e.b, (Const, Broadcast)):
            divisor = e.b.a if isinstance(e.b, Broadcast) else e.b
            if isinstance(divisor, Const) and divisor.value > 0:
                return self.arith.divide_by_constant(e.op, a, int(divisor.value))
        made = self.arith.binary(e.op, a, self.expr(e.b), e.dtype)
        if e.op == "&" and e.dtype.bits == WORD and any(_low_bytes(x) for x in (e.a, e.b)):
            self.f.low_bytes.add(made.ref)
        return made

    def _logical(self, e: Binary) -> Value:
        """Lazy `and`/`or`: through a Select, whose poison does not spread either."""
        true, false = Const(True, bool_), Const(False, bool_)
        a = self.expr(e.a)
        if a.lanes > 1:
            true_, false_ = constant(True, bool_, a.lanes), constant(False, bool_, a.lanes)
            wanted = a if e.op == "and" else self.arith.unary("not", a)
            with self._only(wanted if self._unsafe(e.b) else None):
                b = self.expr(e.b)
            return self.arith.select(a, b, false_) if e.op == "and" else self.arith.select(a, true_, b)
        if e.op == "and":
            return self._choose(a, e.b, false)
        return self._choose(a, true, e.b)

    def _select(self, e: Select) -> Value:
        cond = self.expr(e.cond)
        if cond.lanes == 1:
            return self._choose(cond, e.a, e.b)
        arms = []
        for arm, wanted in ((e.a, True), (e.b, False)):
            lanes = None
            if self._unsafe(arm):
                lanes = cond if wanted else self.arith.unary("not", cond)
            with self._only(lanes):
                arms.append(self.expr(arm))
        return self.arith.select(cond, arms[0], arms[1])

    @contextmanager
    def _only(self, lanes: Value | None) -> Iterator[None]:
        """Inside, loads happen in `lanes` only (None: no further restriction)."""
        outer, memo = self._active, dict(self._loaded)
        if lanes is not None:
            self._active = lanes if outer is None else self._both(outer, lanes)
        with self.ranges.scope():
            yield
        if lanes is not None:
            self._loaded = memo
        self._active = outer

    def _both(self, a: Value, b: Value) -> Value:
        return self.arith.same(f"and {a.typed}, {b.ref}", a)

    def _choose(self, cond: Value, a: Expr, b: Expr) -> Value:
        """A scalar condition: branch when an arm must not be evaluated in vain."""
        if not (self._unsafe(a) or self._unsafe(b)):
            return self.arith.select(cond, self.expr(a), self.expr(b))
        f = self.f
        then, other, join = f.fresh("pick"), f.fresh("other"), f.fresh("join")
        f.branch(cond.ref, then, other)
        results = []
        memo = dict(self._loaded)
        for label, arm in ((then, a), (other, b)):
            f.label(label)
            self._loaded = dict(memo)
            with self.ranges.scope(), f.scope():
                results.append((self.expr(arm), f.block))
            f.jump(join)
        self._loaded = memo
        f.label(join)
        (x, from_x), (y, from_y) = results
        return self.arith.same(f"phi {x.type} [ {x.ref}, %{from_x} ], [ {y.ref}, %{from_y} ]", x)

    def _unsafe(self, e: Expr) -> bool:
        """Whether evaluating `e` where it is not wanted could leave an array."""
        return any(
            isinstance(n, (Load, VLoad)) and not self.ranges.safe(n, self._storage(n.array).buffer) for n in walk(e)
        )

    # ---- memory ----

    def _storage(self, array: str) -> Storage:
        if array not in self.storage:
            raise BuildError(f"the loop IR accesses the unknown buffer '{array}'")
        return self.storage[array]

    def address(self, array: str, index: tuple[Expr, ...], masked: bool = False) -> Address:
        """Where an access with these subscripts goes. `masked`: it may lie outside the array."""
        if not of_variables(index):
            return self._address(array, index, masked)
        key = array, index, masked  # whatever is stored meanwhile
        known = self.f.known(key)
        return self.f.know(key, self._address(array, index, masked)) if known is None else known

    def _address(self, array: str, index: tuple[Expr, ...], masked: bool) -> Address:
        s = self._storage(array)
        element = memory_type(s.buffer.dtype)
        base, lanes_part, step = self._offsets(s, index)
        inbounds = "" if masked else "inbounds "
        if step == -1 and lanes_part is not None:
            base.append(constant(1 - lanes_part.lanes, i64))
        pointer = s.pointer
        total = self._sum(base)
        if total.ref != "0":
            pointer = self.f.compute(f"getelementptr {inbounds}{element}, ptr {pointer}, {total.typed}", "p")
        if lanes_part is None or step == 1:
            return Address(pointer)
        return Address(pointer, reversed=True) if step == -1 else Address(pointer, lanes_part, step=step)

    def alignment(self, array: str, index: tuple[Expr, ...], place: Address, dtype: DType, lanes: int) -> int:
        """Bytes to which an access to neighbouring elements is known to be aligned."""
        near = place.offsets is None and lanes > 1
        return self._alignment(array, index, dtype.bytes) if near else dtype.bytes

    def prefetch(self, array: str, index: tuple[Expr, ...]) -> None:
        """A hint to bring an element into all caches."""
        name = self.f.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
        place = self.address(array, index, masked=True)
        self.f.do(f"call void {name}(ptr {place.pointer}, i32 0, i32 3, i32 1)")

    def _offsets(self, s: Storage, index: tuple[Expr, ...]) -> tuple[list[Value], Value | None, int | None]:
        """Scalar summands, the vector summand, and the vector's step where it is a constant run.

        With `sums`, subscripts with constant strides are one sum of multiples of atoms and a constant: accesses at
        constant distances differ in the last summand only and share the others.
        """
        summands: list[Value] = []
        atoms: dict[Expr, int] = {}
        fixed = 0
        lanes_part: Value | None = None
        step: int | None = None
        for e, stride in zip(index, s.strides, strict=True):
            start = e
            if isinstance(e, Ramp) and isinstance(stride, int):
                step = e.stride * stride
                lanes_part = Value(_run(step, e.count), i64, e.count)
                start = e.base
            if start.lanes > 1:
                few = lane_indices.narrow(start, self.index, self.arith, self.ranges)
                at = self.index(start) if few is None else self.arith.cast(few, i64)
                lanes_part = self._scaled(at, stride)
            elif self.sums and isinstance(stride, int) and start.dtype == i64:
                form = linear(start)
                fixed += stride * form.const
                for atom, factor in form.terms:
                    atoms[atom] = atoms.get(atom, 0) + stride * factor
            else:
                summands.append(self._scaled(self.index(start), stride))
        shared = [self._scaled(self.index(atom), factor) for atom, factor in atoms.items() if factor]
        return [*shared, *summands, constant(fixed, i64)], lanes_part, step

    def _scaled(self, v: Value, stride: int | Value) -> Value:
        if isinstance(stride, int):
            if stride == 1 or v.ref == "0":
                return v
            if v.lanes == 1 and not v.ref.startswith("%"):
                return constant(int(v.ref) * stride, i64)
            return self.arith.same(f"mul nsw {v.typed}, {constant(stride, i64, v.lanes).ref}", v)
        return self.arith.same(f"mul nsw {v.typed}, {self.arith.broadcast(stride, v.lanes).ref}", v)

    def _sum(self, summands: list[Value]) -> Value:
        fixed = sum(int(v.ref) for v in summands if not v.ref.startswith("%"))
        out: Value | None = None
        for v in summands:
            if v.ref.startswith("%"):
                out = v if out is None else self.arith.same(f"add nsw {out.typed}, {v.ref}", v)
        if out is None:
            return constant(fixed, i64)
        return out if fixed == 0 else self.arith.same(f"add nsw {out.typed}, {fixed}", out)

    def _load(self, e: Load) -> Value:
        key: tuple[object, ...] = (e.array, e.index)
        if key in self._loaded:
            return self._loaded[key]
        if self._active is not None and not self.ranges.safe(e, self._storage(e.array).buffer):
            return self._guarded_load(e)
        place = self.address(e.array, e.index)
        raw = self.f.emit(f"load {memory_type(e.dtype)}, ptr {place.pointer}, align {e.dtype.bytes}")
        out = self._from_memory(raw, e, 1)
        self._loaded[key] = out
        self.ranges.learn(e.array, e.index, self._storage(e.array).buffer.shape)
        return out

    def _guarded_load(self, e: Load) -> Value:
        """A scalar load inside a vector Select: performed if any lane wants it."""
        lanes = self._active
        assert lanes is not None
        outer, self._active = self._active, None
        name = f"llvm.vector.reduce.or.{suffix('i1', lanes.lanes)}"
        self.f.module.declare(name, "i1", [lanes.type])
        wanted = self.arith.value(f"call i1 @{name}({lanes.typed})", bool_, 1)
        out = self._choose(wanted, e, Const(0, e.dtype))
        self._active = outer
        return out

    def _from_memory(self, raw: str, e: Load | VLoad, lanes: int) -> Value:
        if e.dtype.kind != "bool":
            return Value(raw, e.dtype, lanes)
        return self.arith.compare("!=", Value(raw, u8, lanes), constant(0, u8, lanes))

    def to_memory(self, v: Value) -> Value:
        """A value in its memory form (`bool_` as a byte)."""
        if v.dtype.kind != "bool":
            return v
        return self.arith.value(f"zext {v.typed} to {vector('i8', v.lanes)}", u8, v.lanes)

    def _vload(self, e: VLoad) -> Value:
        key: tuple[object, ...] = (e.array, e.index, e.mask)
        if key in self._loaded:
            return self._loaded[key]
        mask = None if e.mask is None else self.expr(e.mask)
        if self._active is not None and not self.ranges.safe(e, self._storage(e.array).buffer):
            mask = self._active if mask is None else self._both(mask, self._active)
        again = lane_indices.repeated(e, self.ranges) if mask is None else None
        if again is not None:
            return self._repeated(e, *again)
        few = self.f.module.vector_bits < MASKED_STORES and self._active is None
        rows = lane_indices.listed(e) if few else None
        if rows is not None:
            return self._listed(e, rows)
        place = self.address(e.array, e.index, masked=mask is not None)
        type_ = memory_type(e.dtype, e.count)
        picked = mask is None and place.step is not None and self._storage(e.array).buffer.space == "register"
        if place.offsets is not None and picked:
            raw = self._picked(e, place)
        elif place.offsets is not None:
            near = mask is None and place.step is not None and 2 <= place.step <= NEAR
            raw = self._strided(e, place) if near else self._gather(e, place, mask)
        elif mask is None:
            align = self.alignment(e.array, e.index, place, e.dtype, e.count)
            raw = self.f.emit(f"load {type_}, ptr {place.pointer}, align {align}")
        else:
            raw = self._masked_load(e, place, mask)
        if place.reversed:
            raw = self.reverse(type_, raw, e.count)
        out = self._from_memory(raw, e, e.count)
        self._loaded[key] = out
        if mask is None:
            self.ranges.learn(e.array, e.index, self._storage(e.array).buffer.shape)
        return out

    def _repeated(self, e: VLoad, first: tuple[Expr, ...], times: int) -> Value:
        """Neighbouring elements from the first on, each in so many lanes."""
        place, n = self.address(e.array, first), e.count // times
        type_ = memory_type(e.dtype, n)
        raw = self.f.emit(f"load {type_}, ptr {place.pointer}, align {e.dtype.bytes}")
        order = ", ".join(f"i32 {lane // times}" for lane in range(e.count))
        raw = self.f.emit(f"shufflevector {type_} {raw}, {type_} poison, <{e.count} x i32> <{order}>")
        out = self._from_memory(raw, e, e.count)
        self._loaded[e.array, e.index, e.mask] = out
        self.ranges.learn(e.array, e.index, self._storage(e.array).buffer.shape)
        return out

    def _listed(self, e: VLoad, rows: list[tuple[Expr, ...]]) -> Value:
        """Elements one by one."""
        out = Value("poison", e.dtype, e.count)
        for k, row in enumerate(rows):
            x = self._load(Load(e.array, row, e.dtype, None))
            out = self.arith.same(f"insertelement {out.typed}, {x.typed}, i32 {k}", out)
        self._loaded[e.array, e.index, e.mask] = out
        return out

    def reverse(self, type_: str, raw: str, lanes: int) -> str:
        """Lanes in opposite order."""
        order = ", ".join(f"i32 {i}" for i in reversed(range(lanes)))
        return self.f.emit(f"shufflevector {type_} {raw}, {type_} poison, <{lanes} x i32> <{order}>")

    def _masked_load(self, e: VLoad, place: Address, mask: Value) -> str:
        type_ = memory_type(e.dtype, e.count)
        name = f"llvm.masked.load.{suffix(memory_type(e.dtype), e.count)}.p0"
        self.f.module.declare(name, type_, ["ptr", "i32", mask.type, type_])
        bits = self.reverse(mask.type, mask.ref, e.count) if place.reversed else mask.ref
        args = f"ptr {place.pointer}, i32 {e.dtype.bytes}, {mask.type} {bits}, {type_} zeroinitializer"
        return self.f.emit(f"call {type_} @{name}({args})")

    def pointers(self, place: Address, element: str, masked: bool) -> str:
        """The vector of addresses of a gather or scatter."""
        assert place.offsets is not None
        inbounds = "" if masked else "inbounds "
        return self.f.emit(f"getelementptr {inbounds}{element}, ptr {place.pointer}, {place.offsets.typed}")

    def _picked(self, e: VLoad, place: Address) -> str:
        """At constant distances from registers: a gather would keep the buffer out of them."""
        rows = columns.window(e, self._storage(e.array).buffer)
        if rows is not None:
            return columns.column(self.f, place.pointer, e, rows)
        return self.by_lanes(e, place)

    def by_lanes(self, e: VLoad, place: Address) -> str:
        """Lane by lane at constant distances."""
        element = memory_type(e.dtype)
        type_ = vector(element, e.count)
        out = "poison"
        assert place.step is not None
        for lane in range(e.count):
            at = self.f.emit(f"getelementptr inbounds {element}, ptr {place.pointer}, i64 {lane * place.step}", "p")
            x = self.f.emit(f"load {element}, ptr {at}, align {e.dtype.bytes}")
            out = self.f.emit(f"insertelement {type_} {out}, {element} {x}, i32 {lane}")
        return out

    def _strided(self, e: VLoad, place: Address) -> str:
        """Every `step`-th element: contiguous loads between the first and the last, then shuffles."""
        n, step = e.count, place.step
        assert step is not None
        element = memory_type(e.dtype)
        type_ = vector(element, n)
        starts = [*(k * n for k in range(step - 1)), (n - 1) * (step - 1)]
        out = ""
        for k, start in enumerate(starts):
            at = self.f.emit(f"getelementptr inbounds {element}, ptr {place.pointer}, i64 {start}", "p")
            window = self.f.emit(f"load {type_}, ptr {at}, align {e.dtype.bytes}")
            if k == 0:
                out = window
                continue
            picks = []
            for lane in range(n):
                source = min(lane * step // n, step - 1)
                own = lane if k > 1 else lane * step  # the first window still has its elements apart
                picks.append(n + lane * step - start if source == k else own if source < k else -1)
            order = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in picks)
            out = self.f.emit(f"shufflevector {type_} {out}, {type_} {window}, <{n} x i32> <{order}>")
        return out

    def _gather(self, e: VLoad, place: Address, mask: Value | None) -> str:
        n, element = e.count, memory_type(e.dtype)
        type_ = vector(element, n)
        name = f"llvm.masked.gather.{suffix(element, n)}.{suffix('p0', n)}"
        self.f.module.declare(name, type_, [f"<{n} x ptr>", "i32", f"<{n} x i1>", type_])
        addresses = self.pointers(place, element, mask is not None)
        lanes = mask or constant(True, bool_, n)
        args = f"<{n} x ptr> {addresses}, i32 {e.dtype.bytes}, {lanes.typed}, {type_} zeroinitializer"
        return self.f.emit(f"call {type_} @{name}({args})")

    def _store_lanes(self, v: Value, element: str, place: Address, align: int) -> None:
        """Lane by lane at constant distances: a scatter would work out a vector of addresses first."""
        assert place.step is not None
        for lane in range(v.lanes):
            x = self.f.emit(f"extractelement {v.typed}, i32 {lane}")
            at = self.f.emit(f"getelementptr inbounds {element}, ptr {place.pointer}, i64 {lane * place.step}", "p")
            self.f.do(f"store {element} {x}, ptr {at}, align {align}")

    def _alignment(self, array: str, index: tuple[Expr, ...], element: int) -> int:
        """Bytes of which the address of a run of elements is a multiple: of arrays whose begin is a multiple of 64,
        what follows from their strides and the steps of the loops; else those of an element."""
        storage = self._storage(array)
        if storage.buffer.space == "param" and not storage.buffer.aligned:
            return element
        found = ALIGNED
        for e, stride in zip(index, storage.strides, strict=True):
            if not isinstance(stride, int) or (isinstance(e, Ramp) and e.stride != 1):
                return element
            found = gcd(found, self.ranges.divisor(e.base if isinstance(e, Ramp) else e) * stride * element)
        return found

    def store(self, array: str, index: tuple[Expr, ...], value: Value, mask: Value | None) -> None:
        """`array[index] = value` (evaluated)."""
        place = self.address(array, index, masked=mask is not None)
        v = self.to_memory(value)
        element, n, align = scalar_type(v.dtype), v.lanes, value.dtype.bytes
        near = place.offsets is None and v.lanes > 1
        align = self._alignment(array, index, align) if near else align
        if place.offsets is not None and place.step is not None and mask is None:
            self._store_lanes(v, element, place, align)
            return
        if place.offsets is not None:
            lanes = mask or constant(True, bool_, n)
            name = f"llvm.masked.scatter.{suffix(element, n)}.{suffix('p0', n)}"
            self.f.module.declare(name, "void", [v.type, f"<{n} x ptr>", "i32", f"<{n} x i1>"])
            addresses = self.pointers(place, element, mask is not None)
            self.f.do(f"call void @{name}({v.typed}, <{n} x ptr> {addresses}, i32 {align}, {lanes.typed})")
            return
        data, bits = v.ref, "" if mask is None else mask.ref
        if place.reversed:
            data = self.reverse(v.type, data, n)
            bits = self.reverse(mask.type, bits, n) if mask else bits
        if mask is None:
            align = self.alignment(array, index, place, value.dtype, n)
            self.f.do(f"store {v.type} {data}, ptr {place.pointer}, align {align}")
            return
        name = f"llvm.masked.store.{suffix(element, n)}.p0"
        self.f.module.declare(name, "void", [v.type, "ptr", "i32", mask.type])
        self.f.do(f"call void @{name}({v.type} {data}, ptr {place.pointer}, i32 {align}, {mask.type} {bits})")


@functools.cache
def _run(step: int, count: int) -> str:
    """The vector `0, step, 2 * step, ...`."""
    return f"<{', '.join(f'i64 {k * step}' for k in range(count))}>"


def _low_bytes(e: Expr) -> bool:
    """Whether it is a constant of four bytes below 128."""
    e = e.a if isinstance(e, Broadcast) else e
    return isinstance(e, Const) and not int(e.value) & TOP_BITS
