"""The public functions of a stand-alone operator in LLVM IR, as `polyc.emit.interface` describes them."""

from __future__ import annotations

import re

from polyc.emit.interface import BAD_SIZES, NO_MEMORY, OK, OUT_OF_BOUNDS, Interface, Parameter
from polyc.emit.llvm.code import FunctionText, ModuleText
from polyc.emit.llvm.expr import Expressions
from polyc.emit.llvm.types import Value
from polyc.emit.loop_ir.loops import Buffer, Function
from polyc.emit.passes.workspace import formula_bytes
from polyc.emit.run_time import threadpool
from polyc.poly.dtypes import i64
from polyc.poly.expr import Expr
from polyc.poly.records import dataclass

ALIGN = 64


@dataclass(frozen=True)
class PlainEntry:
    """Writes NAME, and with `has_scratch` NAME_scratch_bytes and NAME_with; `scratch`: the last buffers of the loops.

    `guard`: a condition on the sizes, else BAD_SIZES. `threads` > 1: parallel loops run on a pool that the
    module brings along and starts at the first call; `triple` says for which machine. `record`: of violated accesses.
    """

    interface: Interface
    guard: Expr | None
    scratch: tuple[Buffer, ...]
    has_scratch: bool
    threads: int
    triple: str
    record: Buffer | None = None

    def __call__(self, module: ModuleText, fn: Function, body: str) -> None:
        i = self.interface
        if self.threads > 1:
            _pool(module, i.name, self.threads, self.triple)
        if not self.has_scratch:
            self._run(module, fn, body, i.name)
            return
        self._bytes(module)
        self._run(module, fn, body, f"{i.name}_with")
        self._allocating(module)

    def _sizes(self, f: FunctionText) -> tuple[list[str], Expressions]:
        x = Expressions(f, False, False)
        names = []
        for _, c in self.interface.sizes:
            names.append(f"%{f.fresh(c)}")
            x.env[c] = Value(names[-1], i64)
        return [f"i64 {n}" for n in names], x

    def _bytes(self, module: ModuleText) -> None:
        f = FunctionText(module)
        sizes, x = self._sizes(f)
        total = "0"
        for step in self._steps(f, x):
            total = f.emit(f"add i64 {total}, {step}", "bytes")
        f.finish(f"define i64 @{self.interface.name}_scratch_bytes({', '.join(sizes)}) #0", f"i64 {total}")

    def _steps(self, f: FunctionText, x: Expressions) -> list[str]:
        """The bytes of each local array, up to a multiple of the alignment."""
        out = []
        for b in self.scratch:
            size = x.bound(formula_bytes(b))
            # Extents may be negative where nothing runs (`K - 2` at K = 1).
            some = f.emit(f"call i64 @llvm.smax.i64({size.typed}, i64 1)", "size")
            module_up = f.emit(f"add i64 {some}, {ALIGN - 1}", "up")
            out.append(f.emit(f"and i64 {module_up}, -{ALIGN}", "rounded"))
        if self.scratch:
            f.module.declare("llvm.smax.i64", "i64", ["i64", "i64"])
        return out

    def _run(self, module: ModuleText, fn: Function, body: str, name: str) -> None:
        f = FunctionText(module)
        parameters = {p.name: (_type(p), f"%{f.fresh(p.name)}") for p in self.interface.parameters}
        sizes, x = self._sizes(f)
        signature = [f"{t} {n}" for t, n in parameters.values()] + sizes
        scratch = f"%{f.fresh('scratch')}"
        if self.has_scratch:
            signature.append(f"ptr {scratch}")
        self._refuse(f, x)
        pointers = {p.name: self._pointer(f, p, *parameters[p.name]) for p in self.interface.parameters}
        at = scratch
        for b, step in zip(self.scratch, self._steps(f, x), strict=True):
            pointers[b.name] = at
            at = f.emit(f"getelementptr i8, ptr {at}, i64 {step}", "next")
        found = []
        if self.record is not None:
            pointers[self.record.name] = place = f.alloca(f"[{len(fn.checks)} x i64]", "record", 16)
            found = [f.emit(f"getelementptr i64, ptr {place}, i64 {k}", "at") for k in range(len(fn.checks))]
            for at in found:
                f.do(f"store i64 0, ptr {at}")
        runtime = f.emit(f"call ptr @{self.interface.name}.threads()", "threads") if self.threads > 1 else "null"
        arguments = [f"ptr {pointers[b.name]}" for b in fn.buffers]
        arguments += [x.env[p].typed for p in fn.params]
        f.do(f"call void @{body}({', '.join([*arguments, f'ptr {runtime}'])})")
        status = str(OK)
        if found:
            total = "0"
            for at in found:
                total = f.emit(f"or i64 {total}, {f.emit(f'load i64, ptr {at}', 'found')}", "any")
            clean = f.emit(f"icmp eq i64 {total}, 0", "clean")
            status = f.emit(f"select i1 {clean}, i32 {OK}, i32 {OUT_OF_BOUNDS}", "status")
        f.finish(f"define i32 @{name}({', '.join(signature)}) #0", f"i32 {status}")

    def _pointer(self, f: FunctionText, p: Parameter, type_: str, value: str) -> str:
        """Where the loops find an argument: numbers are put into memory."""
        if p.role != "scalar":
            return value
        place = f.alloca(type_, f"{p.name}.place", 16)
        f.do(f"store {type_} {value}, ptr {place}")
        return place

    def _refuse(self, f: FunctionText, x: Expressions) -> None:
        if self.guard is None:
            return
        bad, fine = f.fresh("bad.sizes"), f.fresh("sizes")
        f.branch(x.value(self.guard).ref, fine, bad)
        f.label(bad)
        f.do(f"ret i32 {BAD_SIZES}")
        f.label(fine)

    def _allocating(self, module: ModuleText) -> None:
        """NAME: NAME_with, with memory for the time of the call."""
        i = self.interface
        f = FunctionText(module)
        values = [f"{_type(p)} %{f.fresh(p.name)}" for p in i.parameters]
        sizes, x = self._sizes(f)
        self._refuse(f, x)
        module.declare("malloc", "noalias ptr", ["i64"])
        module.declare("free", "void", ["ptr nocapture"])
        count = f.emit(f"call i64 @{i.name}_scratch_bytes({', '.join(sizes)})", "bytes")
        padded = f.emit(f"add i64 {count}, {ALIGN}", "padded")
        memory = f.emit(f"call noalias ptr @malloc(i64 {padded})", "memory")
        none, there = f.fresh("no.memory"), f.fresh("there")
        f.branch(f.emit(f"icmp eq ptr {memory}, null", "null"), none, there)
        f.label(none)
        f.do(f"ret i32 {NO_MEMORY}")
        f.label(there)
        number = f.emit(f"ptrtoint ptr {memory} to i64", "number")
        up = f.emit(f"add i64 {number}, {ALIGN - 1}", "up")
        low = f.emit(f"and i64 {up}, -{ALIGN}", "aligned")
        offset = f.emit(f"sub i64 {low}, {number}", "offset")
        aligned = f.emit(f"getelementptr i8, ptr {memory}, i64 {offset}", "scratch")
        status = f.emit(f"call i32 @{i.name}_with({', '.join([*values, *sizes, f'ptr {aligned}'])})", "status")
        f.do(f"call void @free(ptr {memory})")
        f.finish(f"define i32 @{i.name}({', '.join([*values, *sizes])}) #0", f"i32 {status}")


def _type(p: Parameter) -> str:
    """How an argument is passed: f16 and bf16 as their bits."""
    if p.role != "scalar":
        return "ptr"
    names = {"f32": "float", "f64": "double", "bool_": "i8"}
    return names.get(p.dtype.name, f"i{p.dtype.bits}")


def _pool(module: ModuleText, name: str, threads: int, triple: str) -> None:
    """The thread pool, shared by all operators of a program, and a function that gives the one of this operator.

    A forked child has none of the threads: there loops run on the caller's.
    """
    for line in threadpool.source(triple).splitlines()[2:]:
        declared = re.match(r"declare .*@([\w.]+)\(", line)
        if declared:
            module.declarations.setdefault(declared[1], line)
    definitions = [line for line in threadpool.source(triple).splitlines()[2:] if not line.startswith("declare ")]
    text = "\n".join(definitions).strip()
    module.functions.append(re.sub(r"^define (?!internal)", "define linkonce_odr hidden ", text, flags=re.MULTILINE))
    module.declare("getpid", "i32", [])
    module.functions.append(
        f"""@{name}.pool = internal global ptr null
@{name}.process = internal global i32 0

define internal ptr @{name}.threads() #0 {{
entry:
  %pid = call i32 @getpid()
  %pool = load atomic ptr, ptr @{name}.pool acquire, align 8
  %first = icmp eq ptr %pool, null
  br i1 %first, label %make, label %there
there:
  %owner = load i32, ptr @{name}.process, align 4
  %same = icmp eq i32 %owner, %pid
  %usable = select i1 %same, ptr %pool, ptr null
  ret ptr %usable
make:
  %made = call ptr @polyc_pool_create(i64 {threads})
  %none = icmp eq ptr %made, null
  br i1 %none, label %alone, label %publish
publish:
  store i32 %pid, ptr @{name}.process, align 4
  %swap = cmpxchg ptr @{name}.pool, ptr null, ptr %made acq_rel acquire, align 8
  %won = extractvalue {{ ptr, i1 }} %swap, 1
  br i1 %won, label %mine, label %other
mine:
  ret ptr %made
other:
  call void @polyc_pool_destroy(ptr %made)
  %theirs = extractvalue {{ ptr, i1 }} %swap, 0
  ret ptr %theirs
alone:
  ret ptr null
}}"""
    )
