"""Loop-IR expressions to MLIR operations: subscripts, loads, lazy selects, vectors.

A subscript or bound that is affine stays a map of the operation that it belongs to (`affine.load %A[%i + 1, %j]`). What
has no operations here is a `BuildError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from polyc.emit.loop_ir.linear import is_index, operands
from polyc.emit.loop_ir.loops import Broadcast, Buffer, HReduce, Ramp, VLoad
from polyc.emit.loop_ir.ranges import Ranges
from polyc.emit.mlir.affine import affine, affine_map
from polyc.emit.mlir.arith import Arithmetic
from polyc.emit.mlir.code import FunctionText
from polyc.emit.mlir.types import Value, memory_type
from polyc.poly.dtypes import DType, bool_, i64, u8
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, walk
from polyc.poly.records import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """A buffer: its memref and that one's type."""

    buffer: Buffer
    ref: str
    type: str


def memref_type(b: Buffer) -> str:
    """The type of a dense row-major array; sizes that are not numbers are `?`."""
    sizes = [f"{int(n.value)}x" if isinstance(n, Const) else "?x" for n in b.shape]
    return f"memref<{''.join(sizes)}{memory_type(b.dtype)}>"


class Expressions:
    """Emits expressions into one function.

    `dims` are the variables that MLIR takes as dimensions of maps, `indices` all that have its type `index`, `values`
    what those of them stand for that are no dimensions, and `env` the others. What the sizes alone decide is computed
    at the begin of the function, where it is a dimension. `memory` holds the buffers in scope.
    """

    def __init__(self, f: FunctionText, fast: bool) -> None:
        self.f = f
        self.arith = Arithmetic(f, fast)
        self.dims: dict[str, str] = {}
        self.indices: dict[str, str] = {}
        self.values: dict[str, Expr] = {}
        self._sizes: set[str] = set()
        self._of_sizes: dict[Expr, str] = {}
        self.env: dict[str, Value] = {}
        self.memory: dict[str, Memory] = {}
        self.ranges = Ranges()
        self._active: Value | None = None  # lanes whose loads are wanted, inside a vector Select

    # ---- indices ----

    def index(self, e: Expr) -> str:
        """A subscript, bound or size, as a value of type `index`."""
        if isinstance(e, Const):
            return self.f.constant(str(int(e.value)), "index")
        if isinstance(e, Var) and e.name in self.indices:
            return self.indices[e.name]
        if e.lanes == 1 and (found := affine_map([e], self.dimension)) is not None:
            whole = found.text == "affine_map<(d0) -> (d0)>"
            return found.dims[0] if whole else self.f.emit(f"affine.apply {found}", "at")
        return self._chosen(e) or self._as_index(self.expr(e))

    def dimension(self, e: Expr) -> str | None:
        """The SSA name of a variable that is a dimension, or of an expression of sizes alone that is not affine."""
        if isinstance(e, Var):
            return self.dims.get(e.name)
        if e in self._of_sizes:
            return self._of_sizes[e]
        if not is_index(e) or not _names(e) <= self._sizes:
            return None
        with self.f.at_begin():
            self._of_sizes[e] = self._chosen(e) or self._as_index(self.expr(e))
        return self._of_sizes[e]

    def _chosen(self, e: Expr) -> str | None:
        """A minimum or maximum of affine expressions."""
        for op in ("min", "max"):
            choices = operands(e, op)
            if len(choices) > 1 and (found := affine_map(choices, self.dimension)) is not None:
                return self.f.emit(f"affine.{op} {found}", op)
        return None

    def size(self, name: str, ref: str) -> None:
        """A size of the function, or what is made of sizes only."""
        self.dims[name] = self.indices[name] = ref
        self._sizes.add(name)

    def _as_index(self, v: Value) -> str:
        wide = self.arith.cast(v, i64)
        return self.f.emit(f"arith.index_cast {wide.ref} : i64 to index", "at")

    def _place(self, index: Sequence[Expr]) -> tuple[str, bool]:
        """Subscripts as text, and whether they are affine (else they are values)."""
        texts = [affine(e, self.dimension) for e in index]
        if all(t is not None for t in texts):
            return ", ".join(map(str, texts)), True
        return ", ".join(self.index(e) for e in index), False

    def bind(self, name: str, value: Expr) -> None:
        """Give a `Let` its value."""
        names = _names(value)
        if value.lanes == 1 and is_index(value) and names <= self._sizes:
            with self.f.at_begin():
                self.size(name, self.index(value))
        elif value.lanes == 1 and is_index(value) and names <= self.indices.keys():
            self.indices[name] = self.index(value)
            if affine(value, self.dimension) is not None:
                self.dims[name] = self.indices[name]
            else:
                self.values[name] = value
        else:
            self.env[name] = self.expr(value)

    def unbind(self, name: str) -> None:
        """Forget a variable."""
        for table in (self.dims, self.indices, self.values, self.env):
            table.pop(name, None)
        self._sizes.discard(name)

    # ---- values ----

    def expr(self, e: Expr) -> Value:
        """The value of an expression: dispatch on the node type."""
        if isinstance(e, Const):
            return self.arith.scalar(e.value, e.dtype)
        if isinstance(e, Var):
            return self._variable(e)
        if isinstance(e, Load):
            return self._load(e)
        if isinstance(e, VLoad):
            return self._vload(e)
        if isinstance(e, Binary):
            return self._binary(e)
        if isinstance(e, Select):
            return self._select(e)
        if isinstance(e, Cast):
            return self.arith.cast(self.expr(e.a), e.dtype)
        if isinstance(e, Unary):
            return self.arith.unary(e.op, self.expr(e.a))
        if isinstance(e, Call):
            return self.arith.intrinsic(e.fn, [self.expr(a) for a in e.args], e.dtype)
        if isinstance(e, Broadcast):
            return self.arith.broadcast(self.expr(e.a), e.count)
        if isinstance(e, Ramp):
            base = self.expr(e.base)
            return base if e.count == 1 else self.arith.ramp(base, e.stride, e.count)
        if isinstance(e, HReduce):
            return self.arith.reduce(e.op, self.expr(e.a))
        raise BuildError(f"MLIR has no form for the loop-IR expression {type(e).__name__}")

    def _variable(self, e: Var) -> Value:
        if e.name in self.indices:
            return Value(self.f.emit(f"arith.index_cast {self.indices[e.name]} : index to i64"), i64)
        if e.name not in self.env:
            raise BuildError(f"the loop IR uses the unbound variable '{e.name}'")
        return self.env[e.name]

    def _binary(self, e: Binary) -> Value:
        if e.op in ("and", "or"):
            return self._logical(e)
        a = self.expr(e.a)
        if e.op in ("//", "%") and e.dtype.is_int and isinstance(e.b, Const | Broadcast):
            divisor = e.b.a if isinstance(e.b, Broadcast) else e.b
            if isinstance(divisor, Const) and divisor.value > 0:
                return self.arith.divide_by_constant(e.op, a, int(divisor.value))
        return self.arith.binary(e.op, a, self.expr(e.b), e.dtype)

    def _logical(self, e: Binary) -> Value:
        """Lazy `and`/`or`, as a Select."""
        a = self.expr(e.a)
        end = Const(e.op == "or", bool_)
        if a.lanes == 1:
            return self._choose(a, e.b, end) if e.op == "and" else self._choose(a, end, e.b)
        with self._only(a, e.op == "and", e.b):
            b = self.expr(e.b)
        return self.arith.binary(e.op, a, b, bool_)

    def _select(self, e: Select) -> Value:
        cond = self.expr(e.cond)
        if cond.lanes == 1:
            return self._choose(cond, e.a, e.b)
        with self._only(cond, True, e.a):
            a = self.expr(e.a)
        with self._only(cond, False, e.b):
            b = self.expr(e.b)
        return self.arith.select(cond, a, b)

    @contextmanager
    def _only(self, cond: Value, wanted: bool, arm: Expr) -> Iterator[None]:
        """Inside, the loads of `arm` that may lie outside happen only in the lanes where `cond` is `wanted`."""
        outer = self._active
        if self._unsafe(arm):
            lanes = cond if wanted else self.arith.unary("not", cond)
            self._active = lanes if outer is None else self.arith.both(outer, lanes)
        with self.ranges.scope():
            yield
        self._active = outer

    def _choose(self, cond: Value, a: Expr, b: Expr) -> Value:
        """A scalar condition: a region for each arm where one must not be evaluated in vain."""
        if not (self._unsafe(a) or self._unsafe(b)):
            return self.arith.select(cond, self.expr(a), self.expr(b))
        return self.either(cond, Value("", a.dtype, max(a.lanes, b.lanes)), lambda: self.expr(a), lambda: self.expr(b))

    def either(self, cond: Value, like: Value, then: Callable[[], Value], other: Callable[[], Value]) -> Value:
        """A value of the type of `like`, made by `then` or by `other`."""
        name = self.f.fresh("v")
        for head, arm in ((f"{name} = scf.if {cond.ref} -> ({like.type}) {{", then), ("} else {", other)):
            self.f.do(head)
            self.f.depth += 1
            with self.ranges.scope():
                self.f.do(f"scf.yield {arm().ref} : {like.type}")
            self.f.depth -= 1
        self.f.do("}")
        return Value(name, like.dtype, like.lanes)

    def _unsafe(self, e: Expr) -> bool:
        """Whether evaluating `e` where it is not wanted could leave an array."""
        return any(
            isinstance(n, Load | VLoad) and not self.ranges.safe(n, self._memory(n.array).buffer) for n in walk(e)
        )

    # ---- memory ----

    def _memory(self, array: str) -> Memory:
        if array not in self.memory:
            raise BuildError(f"the loop IR accesses the unknown buffer '{array}'")
        return self.memory[array]

    def _load(self, e: Load) -> Value:
        if self._active is not None and not self.ranges.safe(e, self._memory(e.array).buffer):
            return self._guarded_load(e)
        m = self._memory(e.array)
        at, is_affine = self._place(e.index)
        raw = self.f.emit(f"{'affine' if is_affine else 'memref'}.load {m.ref}[{at}] : {m.type}")
        self.ranges.learn(e.array, e.index)
        return self._from_memory(raw, e.dtype, 1)

    def _guarded_load(self, e: Load) -> Value:
        """A scalar load inside a vector Select: performed if any lane wants it."""
        lanes, outer = self._active, self._active
        assert lanes is not None
        self._active = None
        some = Value(self.f.emit(f"vector.reduction <or>, {lanes.ref} : {lanes.type} into i1"), bool_)
        like = Value("", e.dtype)
        out = self.either(some, like, lambda: self._load(e), lambda: self.arith.scalar(0, e.dtype))
        self._active = outer
        return out

    def _from_memory(self, raw: str, dtype: DType, lanes: int) -> Value:
        if dtype.kind != "bool":
            return Value(raw, dtype, lanes)
        byte = Value(raw, u8, lanes)
        return self.arith.compare("!=", byte, self.arith.constant(0, byte))

    def to_memory(self, v: Value) -> Value:
        """A value in its memory form (`bool_` as a byte)."""
        return self.arith.cast(v, u8) if v.dtype.kind == "bool" else v

    def _vload(self, e: VLoad) -> Value:
        mask = None if e.mask is None else self.expr(e.mask)
        m = self._memory(e.array)
        if self._active is not None and not self.ranges.safe(e, m.buffer):
            mask = self._active if mask is None else self.arith.both(mask, self._active)
        raw = self._read(m, e.index, e.dtype, e.count, mask)
        if mask is None:
            self.ranges.learn(e.array, e.index)
        return self._from_memory(raw, e.dtype, e.count)

    def _read(self, m: Memory, index: Sequence[Expr], dtype: DType, lanes: int, mask: Value | None) -> str:
        """Lanes from memory: neighbours, a run along another axis, any of a row, or one by one."""
        type_ = memory_type(dtype, lanes)
        run = unit_run(index)
        zero = Value("", u8 if dtype.kind == "bool" else dtype)
        if run is not None:
            first = starts(index)
            if run == len(index) - 1:
                if mask is None:
                    at, is_affine = self._place(first)
                    word = "affine.vector_load" if is_affine else "vector.load"
                    return self.f.emit(f"{word} {m.ref}[{at}] : {m.type}, {type_}")
                at = ", ".join(map(self.index, first))
                nothing = self.arith.constant(0, Value("", zero.dtype, lanes)).ref
                types = f"{m.type}, {mask.type}, {type_} into {type_}"
                return self.f.emit(f"vector.maskedload {m.ref}[{at}], {mask.ref}, {nothing} : {types}")
            at = ", ".join(map(self.index, first))
            under = "" if mask is None else f", {mask.ref}"
            nothing = self.arith.constant(0, zero).ref
            text = f"vector.transfer_read {m.ref}[{at}], {nothing}{under} {along(run, len(index))}"
            return self.f.emit(f"{text} : {m.type}, {type_}")
        if in_last(index):
            at, offsets = self._row(index)
            every = mask or self._all(lanes)
            nothing = self.arith.constant(0, Value("", zero.dtype, lanes)).ref
            types = f"{m.type}, {offsets.type}, {every.type}, {type_} into {type_}"
            return self.f.emit(f"vector.gather {m.ref}[{at}] [{offsets.ref}], {every.ref}, {nothing} : {types}")
        places = self._places(index, lanes)
        return self.arith.lanes_of([self._lane(m, p, zero, mask, k) for k, p in enumerate(places)]).ref

    def _lane(self, m: Memory, place: Callable[[], str], zero: Value, mask: Value | None, k: int) -> Value:
        def load() -> Value:
            return Value(self.f.emit(f"memref.load {m.ref}[{place()}] : {m.type}"), zero.dtype)

        if mask is None:
            return load()
        return self.either(self.arith.lane(mask, k), zero, load, lambda: self.arith.constant(0, zero))

    def _places(self, index: Sequence[Expr], lanes: int) -> list[Callable[[], str]]:
        """For each lane its subscripts, computed where they are needed."""
        values = [self._wide(e) if e.lanes > 1 else self.index(e) for e in index]

        def at(k: int) -> str:
            return ", ".join(v if isinstance(v, str) else self._as_index(self.arith.lane(v, k)) for v in values)

        return [partial(at, k) for k in range(lanes)]

    def _wide(self, e: Expr) -> Value:
        return self.arith.cast(self.expr(e), i64)

    def _row(self, index: Sequence[Expr]) -> tuple[str, Value]:
        """Where the row of a gather or scatter begins, and the places in it."""
        at = [self.index(e) for e in index[:-1]]
        last = index[-1]
        if isinstance(last, Ramp):
            return ", ".join([*at, self.index(last.base)]), self.arith.steps(last.stride, last.count)
        return ", ".join([*at, self.f.constant("0", "index")]), self._wide(last)

    def _all(self, lanes: int) -> Value:
        return self.arith.constant(True, Value("", bool_, lanes))

    def store(self, array: str, index: Sequence[Expr], value: Value, mask: Value | None) -> None:
        """`array[index] = value` (evaluated)."""
        m, v = self._memory(array), self.to_memory(value)
        if v.lanes == 1:
            at, is_affine = self._place([e.base if isinstance(e, Ramp) else e for e in index])
            self.f.do(f"{'affine' if is_affine else 'memref'}.store {v.ref}, {m.ref}[{at}] : {m.type}")
            return
        run = unit_run(index)
        if run is not None and run == len(index) - 1:
            if mask is None:
                at, is_affine = self._place(starts(index))
                word = "affine.vector_store" if is_affine else "vector.store"
                self.f.do(f"{word} {v.ref}, {m.ref}[{at}] : {m.type}, {v.type}")
                return
            at = ", ".join(map(self.index, starts(index)))
            types = f"{m.type}, {mask.type}, {v.type}"
            self.f.do(f"vector.maskedstore {m.ref}[{at}], {mask.ref}, {v.ref} : {types}")
        elif run is not None:
            at = ", ".join(map(self.index, starts(index)))
            under = "" if mask is None else f", {mask.ref}"
            text = f"vector.transfer_write {v.ref}, {m.ref}[{at}]{under} {along(run, len(index))}"
            self.f.do(f"{text} : {v.type}, {m.type}")
        elif in_last(index):
            at, offsets = self._row(index)
            every = mask or self._all(v.lanes)
            types = f"{m.type}, {offsets.type}, {every.type}, {v.type}"
            self.f.do(f"vector.scatter {m.ref}[{at}] [{offsets.ref}], {every.ref}, {v.ref} : {types}")
        else:
            for k, place in enumerate(self._places(index, v.lanes)):
                self._store_lane(m, place, self.arith.lane(v, k), None if mask is None else self.arith.lane(mask, k))

    def _store_lane(self, m: Memory, place: Callable[[], str], v: Value, wanted: Value | None) -> None:
        if wanted is None:
            self.f.do(f"memref.store {v.ref}, {m.ref}[{place()}] : {m.type}")
            return
        with self.f.region(f"scf.if {wanted.ref} {{"):
            self.f.do(f"memref.store {v.ref}, {m.ref}[{place()}] : {m.type}")

    def prefetch(self, array: str, index: Sequence[Expr]) -> None:
        """A hint to bring an element into all caches."""
        m = self._memory(array)
        at = ", ".join(map(self.index, index))
        self.f.do(f"memref.prefetch {m.ref}[{at}], read, locality<3>, data : {m.type}")


def unit_run(index: Sequence[Expr]) -> int | None:
    """The axis along which lanes are neighbours, if the subscripts are one ramp of stride 1 and numbers."""
    wide = [k for k, e in enumerate(index) if e.lanes > 1]
    if len(wide) != 1:
        return None
    e = index[wide[0]]
    return wide[0] if isinstance(e, Ramp) and e.stride == 1 else None


def in_last(index: Sequence[Expr]) -> bool:
    """Whether only the last subscript differs between lanes."""
    return index[-1].lanes > 1 and all(e.lanes == 1 for e in index[:-1])


def starts(index: Sequence[Expr]) -> list[Expr]:
    """The subscripts of the first lane."""
    return [e.base if isinstance(e, Ramp) else e for e in index]


def along(axis: int, rank: int) -> str:
    """The attributes of a transfer along one axis, all of whose lanes are inside."""
    dims = ", ".join(f"d{k}" for k in range(rank))
    return f"{{in_bounds = [true], permutation_map = affine_map<({dims}) -> (d{axis})>}}"


def _names(e: Expr) -> set[str]:
    return {n.name for n in walk(e) if isinstance(n, Var)}
