"""The kernels of a GPU function as one module of LLVM IR.

    define ptx_kernel void @NAME(ptr noalias readonly %A, ..., i64 %N, ...)

Kernels, their arguments and their launches are those of the CUDA text, so the host's program is the same. Statements
and expressions are written by the LLVM back end of CPUs. Shared arrays are globals of address space 3; pointers are
generic, and LLVM finds out where they point to. What the machine alone can do are the functions of `helpers`.

What has no instructions here is a `BuildError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polyc.emit.c.expr import Helpers
from polyc.emit.gpu.nvptx import helpers
from polyc.emit.gpu.program import KernelInfo
from polyc.emit.gpu.text.dialects import CUDA
from polyc.emit.gpu.text.source import ALIGNMENT, KernelPrinter, count
from polyc.emit.llvm.code import FunctionText, ModuleText
from polyc.emit.llvm.expr import Address, Expressions
from polyc.emit.llvm.ir import Writer
from polyc.emit.llvm.types import Value, memory_type, register_type
from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Buffer,
    EndCopies,
    For,
    Function,
    Launch,
    PanelProduct,
    Ramp,
    Stmt,
    Store,
    VLoad,
    WarpProduct,
    WarpReduce,
    walk,
)
from polyc.poly.dtypes import DType, f32, i32, i64
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Expr, Load, Var
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget, mma_feature

TRIPLE = "nvptx64-nvidia-cuda"
DYNAMIC = "polyc_dynamic"
WIDE = (2, 4, 8, 16)  # bytes of one access


@dataclass(frozen=True)
class NvptxText:
    """A module of LLVM IR, and its kernels by the names of their launches."""

    text: str
    kernels: Mapping[str, KernelInfo]


def to_nvptx(fn: Function, target: GpuTarget) -> NvptxText:
    """The module of all kernels of `fn`.

    Raises:
        BuildError: the target is not NVIDIA's, a block needs more than it has, or the loop IR holds something that
            has no instructions here.
    """
    if target.kind != "cuda":
        raise BuildError(f"LLVM IR of kernels is for NVIDIA's GPUs, and {target.name} is none: name an sm_NN")
    module = ModuleText()
    kernels: dict[str, KernelInfo] = {}
    visible = {b.name: b for b in fn.buffers} | {s.buffer.name: s.buffer for s in walk(fn.body) if isinstance(s, Alloc)}
    globals_: list[str] = []
    attributes: list[str] = []
    for launch in (s for s in walk(fn.body) if isinstance(s, Launch)):
        kernel = _Kernel(module, fn, launch, visible, target)
        kernels[launch.name] = kernel.written(len(attributes))
        globals_ += kernel.globals
        threads = ",".join(map(str, kernel.plan.info.threads))
        attributes.append(
            f'attributes #{len(attributes)} = {{ nounwind "nvvm.maxntid"="{threads}" "nvvm.minctasm"="1" }}'
        )
    used = _helpers(module)
    head = [f'source_filename = "{fn.name}"', f'target triple = "{TRIPLE}"', *dict.fromkeys(globals_), *attributes]
    text = module.text(head) + "".join(f"\n{text}\n" for text in used)
    if " frem " in text:
        raise BuildError(f"{fn.name}: floats have no exact remainder in NVPTX: print CUDA")
    return NvptxText(text, kernels)


def _helpers(module: ModuleText) -> list[str]:
    """The definitions that the kernels use, and the declarations that these need."""
    called = sorted(name for name in module.declarations if name.startswith("polyc_"))
    texts = []
    for name in called:
        del module.declarations[name]
        pending = name.removeprefix("polyc_wait_")
        texts.append(helpers.wait(int(pending)) if pending != name else helpers.HELPERS[name]())
    for name, declaration in helpers.INTRINSICS.items():
        if any(f"@{name}(" in text for text in texts):
            module.declarations[name] = declaration
    return texts


class _Expressions(Expressions):
    """Wide accesses are aligned to their size; how wide they are the host is told (`widest`, bytes by array)."""

    def __init__(self, f: FunctionText, fast: bool) -> None:
        super().__init__(f, fast, False)
        self.widest: dict[str, int] = {}

    def _alignment(self, array: str, index: tuple[Expr, ...], element: int) -> int:
        return element  # arrays begin where the host says, or at a multiple of 16

    def alignment(self, array: str, index: tuple[Expr, ...], place: Address, dtype: DType, lanes: int) -> int:
        size = lanes * dtype.bytes
        if place.offsets is not None or place.reversed or size not in WIDE:
            return dtype.bytes
        self.widest[array] = max(size, self.widest.get(array, 1))
        return size

    def _picked(self, e: VLoad, place: Address) -> str:
        return self.by_lanes(e, place)


class _Kernel(Writer):
    """Writes one launch."""

    def __init__(
        self, module: ModuleText, fn: Function, launch: Launch, visible: Mapping[str, Buffer], target: GpuTarget
    ) -> None:
        super().__init__(module, fn.name, fn.fast_math, False, None, {})
        self.x: _Expressions = _Expressions(self.f, fn.fast_math)
        self.plan = KernelPrinter(fn.name, launch, dict(visible), Helpers(), target, CUDA)
        self.target = target
        self.globals: list[str] = []
        self.plan.check_threads()

    def written(self, attributes: int) -> KernelInfo:
        """Write the kernel; what the host needs to know of it."""
        plan = self.plan
        arguments: list[tuple[str, str]] = []
        pointers: dict[str, str] = {}
        for name in plan.parameters:
            ref = f"%{self.f.fresh(name)}"
            if name in plan.buffers:
                # What other threads write between barriers a thread's own pointer does not promise to be alone with.
                how = "noalias readonly " if name not in plan.stored else "noalias " if plan.alone(name) else ""
                arguments.append((name, f"ptr {how}ALIGN {ref}"))
                pointers[name] = ref
            else:
                arguments.append((name, f"i64 {ref}"))
                self.x.env[name] = Value(ref, i64)
        for name, ref in pointers.items():
            self.bind(plan.buffers[name], ref)
        for kind, names in (("block", plan.stmt.grid), ("thread", plan.stmt.threads)):
            for axis, (v, _) in zip("xyz", names):
                number = self._call("i32", f"polyc_{kind}_{axis}", [])
                self.x.env[v] = Value(self.f.emit(f"zext i32 {number} to i64", v), i64)
        self._shared()
        self.stmt(plan.stmt.body)
        texts = [t.replace("ALIGN", f"align {self._alignment(n)}") for n, t in arguments]
        self.finish(f"define ptx_kernel void @{plan.info.name}({', '.join(texts)}) #{attributes}")
        widths = tuple(
            replace(a, align=self.x.widest.get(n, 1)) for a, n in zip(plan.info.arguments, plan.parameters, strict=True)
        )
        return replace(plan.info, arguments=widths)

    def _alignment(self, name: str) -> int:
        return max(self.plan.buffers[name].dtype.bytes, self.x.widest.get(name, 1)) if name in self.plan.buffers else 8

    def bind(self, b: Buffer, pointer: str) -> None:
        """Make `b` accessible; kernels are not told the size of the outermost axis."""
        one = Const(1, i64)
        super().bind(replace(b, shape=(one, *b.shape[1:])) if b.shape else b, pointer)
        self.x.storage[b.name] = replace(self.x.storage[b.name], buffer=b)

    def _shared(self) -> None:
        """Shared arrays: globals, or parts of what is asked for at launch."""
        offset = 0
        for b in self.plan.shared:
            if self.plan.dynamic():
                self.globals.append(f"@{DYNAMIC} = external addrspace(3) global [0 x i8], align 128")
                base = f"addrspacecast (ptr addrspace(3) @{DYNAMIC} to ptr)"
                pointer = f"getelementptr (i8, ptr {base}, i64 {offset})" if offset else base
            else:
                name = f"{self.plan.info.name}_{b.name}"
                type_ = f"[{max(1, count(b))} x {memory_type(b.dtype)}]"
                self.globals.append(f"@{name} = internal addrspace(3) global {type_} undef, align {ALIGNMENT}")
                pointer = f"addrspacecast (ptr addrspace(3) @{name} to ptr)"
            offset += self.plan.bytes_of(b)
            self.bind(b, pointer)

    def _call(self, result: str, name: str, arguments: Sequence[tuple[str, str]]) -> str:
        """A call of a helper; its result's name, "" for none."""
        self.module.declare(name, result, [t for t, _ in arguments])
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if result == "void":
            self.f.do(text)
            return ""
        return self.f.emit(text)

    # ---- statements ----

    def block(self, stmts: Sequence[Stmt]) -> None:
        for s in stmts:
            self.stmt(s)

    def loop_metadata(self, s: For) -> str:
        return ""

    def parallel(self, s: For) -> None:
        raise BuildError(f"loop '{s.loop or s.var}' inside a kernel is parallel: run the passes first")

    def write(self, s: Stmt) -> None:
        if isinstance(s, Barrier):
            if s.copies:
                self._call("void", f"polyc_wait_{s.pending}", [])
            self._call("void", "polyc_barrier", [])
        elif isinstance(s, EndCopies):
            self._call("void", "polyc_end_copies", [])
        elif isinstance(s, Store) and s.asynchronous:
            self._copy(s)
        elif isinstance(s, WarpReduce):
            self._warp_reduce(s)
        elif isinstance(s, WarpProduct):
            self._warp_product(s)
        elif isinstance(s, PanelProduct):
            raise BuildError("products of warpgroups have no intrinsics in LLVM: print CUDA")
        else:
            super().write(s)

    def alloc(self, s: Alloc) -> None:
        b = s.buffer
        if b.space == "shared":
            self.stmt(s.body)
            return
        if b.space not in ("register", "local"):
            raise BuildError(f"'{b.promoted or b.name}' of space {b.space} stands inside a kernel")
        type_ = f"[{max(1, count(b))} x {memory_type(b.dtype)}]"
        pointer = self.f.alloca(type_, b.name, max(ALIGNMENT, b.dtype.bytes))
        # Threads beyond an edge compute on with what they never loaded (`unguard_registers.py`).
        self.f.do(f"store {type_} zeroinitializer, ptr {pointer}, align {max(ALIGNMENT, b.dtype.bytes)}")
        self.bind(b, pointer)
        self.stmt(s.body)
        del self.x.storage[b.name]

    def _copy(self, s: Store) -> None:
        """An asynchronous copy to shared memory."""
        assert isinstance(s.value, Load | VLoad)
        size = s.value.lanes * s.value.dtype.bytes
        if size not in (4, 8, 16):
            raise BuildError(f"there is no asynchronous copy of {size} bytes to '{s.array}'")
        places = []
        for array, index in ((s.array, s.index), (s.value.array, s.value.index)):
            first = tuple(i.base if isinstance(i, Ramp) else i for i in index)
            places.append(("ptr", self.x.address(array, first).pointer))
            self.x.widest[array] = max(size, self.x.widest.get(array, 1))
        self._call("void", f"polyc_copy_{size}", places)

    def _warp_reduce(self, s: WarpReduce) -> None:
        value = self.x.value(Load(s.array, s.index, s.dtype))
        distance = s.width // 2
        while distance:
            value = self.x.arith.binary(s.op, value, self._exchanged(value, distance), s.dtype)
            distance //= 2
        self.x.store(s.array, s.index, value, None)

    def _exchanged(self, v: Value, bit: int) -> Value:
        """The value of the thread whose number differs in a bit: words of 32 bits change places (1 or 2 of them)."""
        bits, type_ = v.dtype.bits, register_type(v.dtype)
        word = v.ref if type_ == f"i{bits}" else self.f.emit(f"bitcast {v.typed} to i{bits}")
        parts = [word]
        if bits == 64:
            high = self.f.emit(f"lshr i64 {word}, 32")
            parts = [self.f.emit(f"trunc i64 {p} to i32") for p in (word, high)]
        got = [self._call("i32", "polyc_exchange", [("i32", p), ("i32", str(bit))]) for p in parts]
        out = got[0]
        if bits == 64:
            low, high = (self.f.emit(f"zext i32 {p} to i64") for p in got)
            out = self.f.emit(f"or i64 {low}, {self.f.emit(f'shl i64 {high}, 32')}")
        return Value(out if type_ == f"i{bits}" else self.f.emit(f"bitcast i{bits} {out} to {type_}"), v.dtype)

    # ---- tensor cores ----

    def _warp_product(self, s: WarpProduct) -> None:
        """A warp's product: fragments as the PTX ISA lays them out (`mma.m16n8k16`, and twice `mma.m16n8k8` for tf32).

        With g the thread's y and t its x, register i of the left fragment holds row g + 8 (i % 2) and the columns
        that begin at 2 t + 8 (i / 2) (for tf32 t + 4 (i / 2)), one word each; the right one likewise, by columns.
        """
        if mma_feature(s.dtype.name) not in self.target.features:
            raise BuildError(f"{self.target.name} has no tensor cores for {s.dtype}")
        kind, steps = ("tf32", 2) if s.dtype == f32 else (s.dtype.name, 1)
        rows, columns = s.tiles
        a, b = (self.f.alloca(f"[{n} x i32]", "fragment", ALIGNMENT) for n in (4, 2))
        for step in range(steps):
            for m in range(rows):
                for i in range(4):
                    self._put(a, i, [self._left(s, m, i, k, step) for k in range(1 if kind == "tf32" else 2)])
                for n in range(columns):
                    for i in range(2):
                        self._put(b, i, [self._right(s, n, i, k, step) for k in range(1 if kind == "tf32" else 2)])
                    zero = Const(0, i64)
                    c = self.x.address(s.acc, (Const(m, i64), Const(n, i64), zero, zero)).pointer
                    self._call("void", f"polyc_multiply_{kind}", [("ptr", c), ("ptr", a), ("ptr", b)])

    def _depth(self, s: WarpProduct, register: int, element: int, step: int) -> Expr:
        """The number of a product's element in the 16 of a warp's product."""
        x = Var(self.plan.stmt.threads[0][0])
        if s.dtype == f32:
            return _plus(x, 8 * step + 4 * register)
        return _plus(Binary("*", Const(2, i64), x, i64), 8 * register + element)

    def _left(self, s: WarpProduct, tile: int, i: int, element: int, step: int) -> Expr:
        *outer, row, column = s.left_index
        at = Binary("+", column, self._depth(s, i // 2, element, step), i64)
        return Load(s.left, (*outer, _plus(row, 16 * tile + 8 * (i % 2)), at), s.dtype)

    def _right(self, s: WarpProduct, tile: int, i: int, element: int, step: int) -> Expr:
        *outer, row, column = s.right_index
        x, y = (Var(v) for v, _ in self.plan.stmt.threads[:2])
        own = Binary("+", Binary("-", column, Binary("*", Const(2, i64), x, i64), i64), y, i64)
        at = Binary("+", row, self._depth(s, i, element, step), i64)
        return Load(s.right, (*outer, at, _plus(own, 8 * tile)), s.dtype)

    def _put(self, fragment: str, register: int, elements: list[Expr]) -> None:
        """One word of a fragment: two halves, or an f32 rounded to tf32."""
        values = [self.x.value(e) for e in elements]
        if len(values) == 1:
            word = self._call("i32", "polyc_to_tf32", [("float", values[0].ref)])
        else:
            halves = []
            for v in values:
                bits = v.ref if v.type == "i16" else self.f.emit(f"bitcast {v.typed} to i16")
                halves.append(self.f.emit(f"zext i16 {bits} to i32"))
            high = self.f.emit(f"shl i32 {halves[1]}, 16")
            word = self.f.emit(f"or i32 {halves[0]}, {high}")
        place = self.f.emit(f"getelementptr inbounds i32, ptr {fragment}, i32 {register}", "word")
        self.f.do(f"store {Value(word, i32).typed}, ptr {place}, align 4")


def _plus(e: Expr, number: int) -> Expr:
    return e if number == 0 else Binary("+", e, Const(number, i64), i64)
