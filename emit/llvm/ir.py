"""Loop IR to LLVM IR text.

Layout of the module of a kernel `f`:

    @f(ptr buffers, ptr params, ptr runtime)     the ABI: loads its arguments and calls
    @f.body(noalias pointers, i64 sizes, runtime)  the loops
    @f.body.parallel(i64 lo, i64 hi, ptr context)  iterations lo..hi of a parallel loop

No two arrays of one call may overlap unless both are only read. A parallel loop calls
`runtime[0]` = `void (*)(runtime, fn, context, lo, hi)`, or runs here when runtime is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from polyc.emit.llvm import columns, interleaved
from polyc.emit.llvm.code import FunctionText, ModuleText
from polyc.emit.llvm.counted_lanes import CountedLanes
from polyc.emit.llvm.debug import LineTable
from polyc.emit.llvm.effort import FEW, few_passes, on_diagonals
from polyc.emit.llvm.expr import Expressions, Storage
from polyc.emit.llvm.types import Value, constant, memory_type
from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Buffer,
    For,
    Function,
    If,
    Let,
    MatrixMove,
    MatrixStatement,
    Prefetch,
    Ramp,
    Stmt,
    Store,
    VLoad,
    walk,
)
from polyc.emit.targets import multiplies_codes, own_instructions
from polyc.poly.dtypes import i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Const, Expr, Select, Var
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass
from polyc.poly.target import MASKED_STORES, Target

STACK_BYTES = 16384  # larger or symbolic buffers come from the heap
STACK_TOTAL = 131072  # and so does what would not fit this any more, per function
LOOP_STACK = 262144  # both, in the function of a parallel loop: its arrays cannot be arguments (emit.passes.workspace)
LOOP_ALIGN = 64  # bytes: a loop of a few instructions across two lines of code takes up to twice as long (Zen 3)

Entry = Callable[[ModuleText, Function, str], None]


def to_llvm(
    fn: Function, target: Target, lines: Mapping[int, int] | None = None, entry: Entry | None = None
) -> str:  # fmt: skip
    """The LLVM module of one kernel (vectors expanded, no `vector`/`unroll` loops left).

    With `lines` (`id(statement)` to line) instructions carry debug locations (`polyc.emit.llvm.debug`).
    `entry` writes the public function that calls the body of this name (None: the kernels' own ABI).

    Raises:
        BuildError: the loop IR holds something that LLVM IR has no form for.
    """
    own = "dot_bytes" in own_instructions(target)
    module = ModuleText(target.vector_bits, target.isa, own, multiplies_codes(target))
    table = None if lines is None else LineTable(module, lines)
    few = few_passes(fn)
    reads = columns.reads(e for s in walk(fn.body) for e in expressions(s))
    body = Writer(module, fn.name, fn.fast_math, few, table, reads)
    pointers = [f"%{body.f.fresh(b.name)}" for b in fn.buffers]
    sizes = [f"%{body.f.fresh(p)}" for p in fn.params]
    for name, ref in zip(fn.params, sizes, strict=True):
        body.x.env[name] = Value(ref, i64)
    for b, p in zip(fn.buffers, pointers, strict=True):
        body.bind(b, p)
    body.stmt(fn.body)
    args = [f"{_pointer_type(b)} {p}" for b, p in zip(fn.buffers, pointers, strict=True)]
    args += [f"i64 {s}" for s in sizes] + ["ptr %runtime"]
    name = f"{fn.name}.body"
    body.finish(f"define internal void @{name}({', '.join(args)}) noinline #0")
    (entry or _wrapper)(module, fn, name)
    header = [f'source_filename = "{fn.name}"', f'target triple = "{target.triple}"']
    passes = f" {FEW}" if few else ""
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{target.vector_bits}"{passes} }}'
    return module.text([*header, attributes])


def _pointer_type(b: Buffer) -> str:
    alone = "noalias " if b.apart else ""
    return f"ptr {alone}nocapture {'' if b.writable else 'readonly '}align {b.dtype.bytes}"


def _wrapper(module: ModuleText, fn: Function, body: str) -> None:
    """The public symbol: unpack the argument arrays, call the body."""
    f = FunctionText(module)
    args = []
    for k, b in enumerate(fn.buffers):
        slot = f.emit(f"getelementptr inbounds ptr, ptr %buffers, i64 {k}", "slot")
        args.append(f"ptr {f.emit(f'load ptr, ptr {slot}, align 8', b.name)}")
    for k, p in enumerate(fn.params):
        slot = f.emit(f"getelementptr inbounds i64, ptr %params, i64 {k}", "slot")
        args.append(f"i64 {f.emit(f'load i64, ptr {slot}, align 8', p)}")
    f.do(f"call void @{body}({', '.join([*args, 'ptr %runtime'])})")
    f.finish(f"define void @{fn.name}(ptr %buffers, ptr %params, ptr %runtime) #0")


@dataclass
class Names:
    """What a piece of loop IR uses from outside: variables and buffers, in order of appearance."""

    variables: dict[str, None] = field(default_factory=dict)
    buffers: dict[str, None] = field(default_factory=dict)

    def add_expr(self, e: Expr) -> None:
        """Enter what an expression uses."""
        for n in walk_expr(e):
            if isinstance(n, Var):
                self.variables[n.name] = None
            array = getattr(n, "array", None)
            if array is not None:
                self.buffers[array] = None

    def add(self, root: Stmt) -> Names:
        """Enter what a statement and all inside use; itself, to be chained."""
        for s in walk(root):
            if isinstance(s, (Store, Prefetch, MatrixMove)):
                self.buffers[s.array] = None
            for e in expressions(s):
                self.add_expr(e)
        return self


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions directly in a statement (not those of nested statements)."""
    if isinstance(s, For):
        return (s.lo, s.hi) if s.until is None else (s.lo, s.hi, s.until)
    if isinstance(s, If):
        return (s.cond,)
    if isinstance(s, Let):
        return (s.value,)
    if isinstance(s, Store):
        return (*s.index, s.value) if s.mask is None else (*s.index, s.value, s.mask)
    if isinstance(s, Alloc):
        return s.buffer.shape
    if isinstance(s, (Prefetch, MatrixMove)):
        return s.index
    return ()


def has_vectors(root: Stmt) -> bool:
    """Whether the code is explicitly vectorised."""
    return any(isinstance(n, (Ramp, VLoad)) for s in walk(root) for e in expressions(s) for n in walk_expr(e))


class Writer:
    """Writes the statements of one LLVM function, for which LLVM runs `few` passes. `columns`: the accesses that may be
    columns of each buffer."""

    def __init__(
        self, module: ModuleText, kernel: str, fast: bool, few: bool, table: LineTable | None,
        columns: Mapping[str, list[VLoad]],
    ) -> None:  # fmt: skip
        self.module, self.kernel, self.fast, self.few = module, kernel, fast, few
        self.table, self.columns = table, columns
        self.f = FunctionText(module)
        self.function = ""
        if table is not None:
            self.function = table.function(kernel)
            self.f.suffix = table.location(None, self.function)
        self.x = Expressions(self.f, fast, few)
        self.stack = 0  # bytes of allocas so far
        self.stack_each, self.stack_total = STACK_BYTES, STACK_TOTAL

    # ---- buffers ----

    def bind(self, b: Buffer, pointer: str) -> None:
        """Make `b` accessible at `pointer`."""
        strides: list[int | Value] = []
        acc: int | Value = 1
        for size in reversed(b.shape):
            strides.append(acc)
            acc = self._product(acc, self.x.index(size))
        self.x.storage[b.name] = Storage(b, pointer, tuple(reversed(strides)))

    def _product(self, a: int | Value, b: Value) -> int | Value:
        if not b.ref.startswith("%"):
            if isinstance(a, int):
                return a * int(b.ref)
            return a if b.ref == "1" else self.x.arith.same(f"mul nsw {a.typed}, {b.ref}", a)
        if isinstance(a, int):
            return b if a == 1 else self.x.arith.same(f"mul nsw {b.typed}, {a}", b)
        return self.x.arith.same(f"mul nsw {a.typed}, {b.ref}", a)

    def alloc(self, s: Alloc) -> None:
        """Stack for small constant sizes, else the heap for the time of the body."""
        b = s.buffer
        sizes = [int(n.value) for n in b.shape if isinstance(n, Const)]
        count = 1
        for n in sizes:
            count *= n
        total = count * b.dtype.bytes
        constant_shape = len(sizes) == len(b.shape)
        small = total <= self.stack_each and self.stack + total <= self.stack_total
        if constant_shape and (small or b.space == "register"):
            self.stack += total
            pointer = self.f.alloca(f"[{max(1, count)} x {memory_type(b.dtype)}]", b.name, max(64, b.align))
            self.bind(b, pointer)
            if b.space == "register":
                columns.begin(self.f, pointer, b, self.columns.get(b.name, ()))
            self.stmt(s.body)
        else:
            self._heap_alloc(b, s.body)
        del self.x.storage[b.name]

    def _heap_alloc(self, b: Buffer, body: Stmt) -> None:
        self.bind(b, "null")
        strides = self.x.storage[b.name].strides
        elements = self._product(strides[0], self.x.index(b.shape[0])) if b.shape else 1
        count = constant(elements, i64) if isinstance(elements, int) else elements
        # Extents may be negative where nothing runs (`K - 2` at K = 1).
        some = self.x.arith.compare(">", count, constant(0, i64))
        count = self.x.arith.select(some, count, constant(1, i64))
        size = self.x.arith.same(f"mul nsw {count.typed}, {b.dtype.bytes}", count)
        padded = self.x.arith.same(f"add nsw {size.typed}, 127", size)
        rounded = self.x.arith.same(f"and {padded.typed}, -64", size)
        self.module.declare("aligned_alloc", "noalias ptr", ["i64", "i64"])
        self.module.declare("free", "void", ["ptr nocapture"])
        pointer = self.f.emit(f"call noalias align 64 ptr @aligned_alloc(i64 64, {rounded.typed})", b.name)
        self._abort_if_null(pointer)
        self.x.storage[b.name] = Storage(b, pointer, strides)
        self.stmt(body)
        self.f.do(f"call void @free(ptr {pointer})")

    def _abort_if_null(self, pointer: str) -> None:
        """Out of memory: there is no way to report it through the ABI."""
        f = self.f
        self.module.declare("abort", "void", [])
        null, there = f.fresh("no.memory"), f.fresh("memory")
        f.branch(f.emit(f"icmp eq ptr {pointer}, null"), null, there)
        f.label(null)
        f.do("call void @abort()")
        f.do("unreachable")
        f.label(there)

    # ---- statements ----

    def finish(self, signature: str) -> None:
        """Close the function."""
        self.f.finish(f"{signature} !dbg {self.function}" if self.function else signature)

    def stmt(self, s: Stmt) -> None:
        """One statement; what is written for it carries its location."""
        outer = self.f.suffix
        self.locate(s)
        self.write(s)
        self.f.suffix = outer

    def locate(self, s: Stmt) -> None:
        """What comes next is of `s`."""
        if self.table is not None and not isinstance(s, Block):
            self.f.suffix = self.table.location(s, self.function)

    def write(self, s: Stmt) -> None:
        """What a statement does; raises `BuildError` for one that has no form here."""
        if isinstance(s, Block):
            self.block(s.stmts)
        elif isinstance(s, Store):
            self._store(s)
        elif isinstance(s, For):
            self._for(s)
        elif isinstance(s, Let):
            self._let(s)
        elif isinstance(s, If):
            self._if(s)
        elif isinstance(s, Alloc):
            self.alloc(s)
        elif isinstance(s, Prefetch):
            self.x.prefetch(s.array, s.index)
        elif isinstance(s, MatrixStatement):
            from polyc.emit.llvm import matrices  # few functions have any

            matrices.write(self.x, s)
        else:
            raise BuildError(f"LLVM IR has no form for the loop-IR statement {type(s).__name__}")

    def block(self, stmts: Sequence[Stmt]) -> None:
        """Statements in order."""
        done = 0
        for k, inner in enumerate(stmts):
            together = interleaved.run(stmts[k : k + interleaved.MOST], self.x.storage) if k >= done else []
            if together:
                done = k + len(together)
                self.locate(inner)
                interleaved.store(self.x, together, [s for s in stmts[k:done] if isinstance(s, Store)])
            elif k >= done:
                self.stmt(inner)

    def _store(self, s: Store) -> None:
        if s.mask is None and s.array in self.x.storage:  # (what the value reads lies beside)
            self.x.ranges.learn(s.array, s.index, self.x.storage[s.array].buffer.shape)
        value = self.x.value(s.value)
        mask = None if s.mask is None else self.x.expr(s.mask)
        if mask is None and self._keeps_lanes(s):
            value = self.x.arith.same(f"freeze {value.typed}", value)
        self.x.store(s.array, s.index, value, mask)

    def _keeps_lanes(self, s: Store) -> bool:
        """Whether a whole vector is stored in which some lanes are what is there already. Without the `freeze` between
        choice and store LLVM makes a masked store of both, on machines that have slow ones, too."""
        v = s.value
        if self.module.vector_bits >= MASKED_STORES or v.lanes == 1 or not isinstance(v, Select):
            return False
        there = [x for x in (v.a, v.b) if isinstance(x, VLoad) and (x.array, x.index) == (s.array, s.index)]
        return bool(there) and self.x.storage[s.array].buffer.space != "register"

    def _let(self, s: Let) -> None:
        outer = self.x.env.get(s.name)
        self.x.env[s.name] = self.x.value(s.value)
        self.stmt(s.body)
        if outer is None:
            del self.x.env[s.name]
        else:
            self.x.env[s.name] = outer

    def _if(self, s: If) -> None:
        f = self.f
        cond = self.x.value(s.cond)
        then, join = f.fresh("then"), f.fresh("endif")
        other = join if s.orelse is None else f.fresh("else")
        f.branch(cond.ref, then, other)
        for label, body in ((then, s.then), (other, s.orelse)):
            if body is None:
                continue
            f.label(label)
            with self.x.ranges.scope(), f.scope():
                self.stmt(body)
            f.jump(join)
        f.label(join)

    def _for(self, s: For) -> None:
        if s.kind == "parallel":
            self.parallel(s)
            return
        if s.kind != "serial":
            raise BuildError(f"the '{s.kind}' loop {s.var} must be expanded before LLVM IR is printed")
        self._loop(s, self.x.bound(s.lo), self.x.bound(s.hi))

    def _loop(self, s: For, lo: Value, hi: Value) -> None:
        f = self.f
        head, body, done = f.fresh(f"{s.var}.head"), f.fresh(f"{s.var}.body"), f.fresh(f"{s.var}.end")
        before, enter = f.block, len(f.lines)
        around, counted = self.x.counted, CountedLanes(f, s, lo, self.x.env)
        self.x.counted = counted
        f.jump(head)
        f.label(head)
        var, step = "%" + f.fresh(s.var), "%" + f.fresh(f"{s.var}.next")
        slot = len(f.lines)
        f.lines.append("")
        more = f.emit(f"icmp slt i64 {var}, {hi.ref}")
        with f.scope():
            if s.until is not None:
                test = f.fresh(f"{s.var}.test")
                f.branch(more, test, done)
                f.label(test)
                more = f.emit(f"xor i1 {self.x.value(s.until).ref}, true")
            f.branch(more, body, done)
            f.label(body)
            outer = self.x.env.get(s.var)
            self.x.env[s.var] = Value(var, i64)
            with self.x.ranges.loop(s):
                self.stmt(s.body)
            if outer is None:
                del self.x.env[s.var]
            else:
                self.x.env[s.var] = outer
        f.do(f"{step} = add nsw i64 {var}, {s.step}")
        counted.advance()
        phi = f"  {var} = phi i64 [ {lo.ref}, %{before} ], [ {step}, %{f.block} ]{f.suffix}"
        f.lines[slot] = "\n".join([phi, *counted.phis(before, f.block, f.suffix)])
        f.lines[enter] = "\n".join([*counted.before, f.lines[enter]])
        self.x.counted = around
        f.jump(head, self.loop_metadata(s))
        f.label(done)

    def loop_metadata(self, s: For) -> str:
        """Loops with explicit vectors are left as they are, the innermost at the start of a line of code; others LLVM
        may improve. It shall not make vectors of elements that lie apart: it takes their gathers for cheaper than they
        are."""
        vectors = has_vectors(s.body)
        if not vectors and not on_diagonals(s):
            return ""
        no_vectors = self.module.shared_metadata('!"llvm.loop.vectorize.enable", i1 false')
        if not vectors:
            return f", !llvm.loop {self.module.add_metadata(f'SELF, {no_vectors}', distinct=True)}"
        wanted = [no_vectors, self.module.shared_metadata('!"llvm.loop.unroll.disable"')]
        if not any(isinstance(n, For) for n in walk(s.body)):
            wanted.append(self.module.shared_metadata(f'!"llvm.loop.align", i32 {LOOP_ALIGN}'))
        return f", !llvm.loop {self.module.add_metadata(', '.join(['SELF', *wanted]), distinct=True)}"

    # ---- parallel loops ----

    def parallel(self, s: For) -> None:
        """Outline the loop over its iteration numbers and hand it to the thread pool."""
        names = Names().add(s.body)
        names.add_expr(s.lo)
        buffers = [self.x.storage[b] for b in names.buffers if b in self.x.storage]
        variables = [v for v in names.variables if v in self.x.env and v != s.var]
        lo, hi = self.x.bound(s.lo), self.x.bound(s.hi)
        strides = [v for b in buffers for v in b.strides if isinstance(v, Value)]
        captured = [*(self.x.env[v] for v in variables), *strides, lo]
        fields = ["ptr"] * len(buffers) + [v.type for v in captured]
        context = f"{{ {', '.join(fields)} }}"
        symbol = self.module.unique(f"{self.kernel}.{s.var}.parallel")
        slot = self.f.alloca(context, "context", 64)
        for k, text in enumerate([*(f"ptr {b.pointer}" for b in buffers), *(v.typed for v in captured)]):
            place = self.f.emit(f"getelementptr inbounds {context}, ptr {slot}, i32 0, i32 {k}", "field")
            self.f.do(f"store {text}, ptr {place}")
        count = self._iterations(lo, hi, s.step)
        self._outline(s, symbol, context, buffers, variables)
        self._dispatch(symbol, slot, count)

    def _iterations(self, lo: Value, hi: Value, step: int) -> Value:
        same = self.x.arith.same
        span = same(f"sub nsw {hi.typed}, {lo.ref}", lo)
        if step != 1:
            up = same(f"add nsw {span.typed}, {step - 1}", lo)
            span = self.x.arith.divide_by_constant("//", up, step)
        return span

    def _dispatch(self, symbol: str, context: str, count: Value) -> None:
        f = self.f
        alone, pool, join = f.fresh("alone"), f.fresh("pool"), f.fresh("joined")
        null = f.emit("icmp eq ptr %runtime, null")
        f.branch(null, alone, pool)
        f.label(alone)
        f.do(f"call void @{symbol}(i64 0, {count.typed}, ptr {context})")
        f.jump(join)
        f.label(pool)
        entry = f.emit("load ptr, ptr %runtime, align 8", "entry")
        f.do(f"call void {entry}(ptr %runtime, ptr @{symbol}, ptr {context}, i64 0, {count.typed})")
        f.jump(join)
        f.label(join)

    def _outline(self, s: For, symbol: str, context: str, buffers: list[Storage], variables: list[str]) -> None:
        """Two functions: one that unpacks the context, and the loop with noalias pointers."""
        inner = Writer(self.module, self.kernel, self.fast, self.few, self.table, self.columns)
        inner.stack_each = inner.stack_total = LOOP_STACK
        inner.x.ranges = self.x.ranges
        inner.locate(s)
        params: list[str] = []
        types: list[str] = []

        def parameter(type_: str, stem: str, attributes: str = "") -> str:
            name = "%" + inner.f.fresh(stem)
            params.append(f"{type_}{attributes} {name}")
            types.append(type_)
            return name

        pointers = [parameter("ptr", b.buffer.name, _pointer_type(b.buffer).removeprefix("ptr")) for b in buffers]
        for v in variables:
            old = self.x.env[v]
            inner.x.env[v] = Value(parameter(old.type, v), old.dtype, old.lanes)
        for b, p in zip(buffers, pointers, strict=True):
            strides = tuple(k if isinstance(k, int) else Value(parameter("i64", "stride"), i64) for k in b.strides)
            inner.x.storage[b.buffer.name] = Storage(b.buffer, p, strides)
        first = Value(parameter("i64", "first"), i64)
        f = inner.f
        # Nested parallel loops run serially: inside, the runtime is null.
        from_ = f.emit(f"mul nsw i64 %from, {s.step}", "offset")
        to = f.emit(f"mul nsw i64 %to, {s.step}", "offset")
        lo = Value(f.emit(f"add nsw {first.typed}, {from_}", "lo"), i64)
        hi = Value(f.emit(f"add nsw {first.typed}, {to}", "hi"), i64)
        inner._loop(s, lo, hi)
        inner.finish(
            f"define internal void @{symbol}.loop(i64 %from, i64 %to, ptr %runtime, {', '.join(params)}) noinline #0"
        )
        outer = FunctionText(self.module)
        args = []
        for k, type_ in enumerate(types):
            place = outer.emit(f"getelementptr inbounds {context}, ptr %context, i32 0, i32 {k}", "field")
            args.append(f"{type_} {outer.emit(f'load {type_}, ptr {place}')}")
        outer.do(f"call void @{symbol}.loop(i64 %from, i64 %to, ptr null, {', '.join(args)})")
        outer.finish(f"define internal void @{symbol}(i64 %from, i64 %to, ptr %context) #0")
