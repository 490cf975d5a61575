"""What a thread of a GPU asks its machine for, as small functions of LLVM IR: NVVM's intrinsics, one a function.

LLVM inlines them. Kernels know nothing of the machine but these functions, so a test can put others in their place and
run the same text on a CPU. Intrinsics: LLVM's "User Guide for NVPTX Back-end"; what the instructions do: PTX ISA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

_ATTRIBUTES = "alwaysinline convergent nounwind"
_SREG = "llvm.nvvm.read.ptx.sreg"


def _define(result: str, name: str, parameters: str, *body: str) -> str:
    lines = "\n".join(f"  {line}" for line in body)
    return f"define internal {result} @{name}({parameters}) {_ATTRIBUTES} {{\n{lines}\n}}"


def _place(kind: str, axis: str) -> str:
    register = {"thread": "tid", "block": "ctaid"}[kind]
    return _define(
        "i32", f"polyc_{kind}_{axis}", "", f"%r = call i32 @{_SREG}.{register}.{axis}()", "ret i32 %r"
    )  # fmt: skip


def _copy(size: int) -> str:
    """An asynchronous copy from an array to shared memory; 16 bytes pass by the first cache."""
    name = f"llvm.nvvm.cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    return _define(
        "void", f"polyc_copy_{size}", "ptr %to, ptr %from",
        "%shared = addrspacecast ptr %to to ptr addrspace(3)", "%global = addrspacecast ptr %from to ptr addrspace(1)",
        f"call void @{name}(ptr addrspace(3) %shared, ptr addrspace(1) %global)", "ret void",
    )  # fmt: skip


def wait(pending: int) -> str:
    """A function that waits until at most so many groups of copies are under way."""
    return _define(
        "void", f"polyc_wait_{pending}", "", f"call void @llvm.nvvm.cp.async.wait.group(i32 {pending})", "ret void"
    )  # fmt: skip


def _multiply(kind: str) -> str:
    """`c += a * b` of fragments in memory: 4 floats, 4 and 2 words."""
    shape, types, word = {
        "f16": ("m16n8k16", "f32.f32", "<2 x half>"),
        "bf16": ("m16n8k16", "bf16", "i32"),
        "tf32": ("m16n8k8", "tf32", "i32"),
    }[kind]
    lines, operands = [], []
    for name, type_, count in (("a", word, 4), ("b", word, 2), ("c", "float", 4)):
        for k in range(count):
            lines.append(f"%p{name}{k} = getelementptr inbounds i32, ptr %{name}, i32 {k}")
            lines.append(f"%{name}{k} = load {type_}, ptr %p{name}{k}, align 4")
            operands.append(f"{type_} %{name}{k}")
    four = "{ float, float, float, float }"
    lines.append(f"%r = call {four} @llvm.nvvm.mma.{shape}.row.col.{types}({', '.join(operands)})")
    for k in range(4):
        lines += [f"%r{k} = extractvalue {four} %r, {k}", f"store float %r{k}, ptr %pc{k}, align 4"]
    return _define("void", f"polyc_multiply_{kind}", "ptr %c, ptr %a, ptr %b", *lines, "ret void")


HELPERS: Mapping[str, Callable[[], str]] = {
    **{f"polyc_{kind}_{axis}": partial(_place, kind, axis) for kind in ("thread", "block") for axis in "xyz"},
    **{f"polyc_copy_{size}": partial(_copy, size) for size in (4, 8, 16)},
    **{f"polyc_multiply_{kind}": partial(_multiply, kind) for kind in ("f16", "bf16", "tf32")},
    "polyc_barrier": lambda: _define("void", "polyc_barrier", "", "call void @llvm.nvvm.barrier0()", "ret void"),
    "polyc_end_copies": lambda: _define(
        "void", "polyc_end_copies", "", "call void @llvm.nvvm.cp.async.commit.group()", "ret void"
    ),
    "polyc_exchange": lambda: _define(
        "i32",
        "polyc_exchange",
        "i32 %a, i32 %bit",
        "%r = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %a, i32 %bit, i32 31)",
        "ret i32 %r",
    ),  # fmt: skip
    "polyc_to_tf32": lambda: _define(
        "i32", "polyc_to_tf32", "float %a", "%r = call i32 @llvm.nvvm.f2tf32.rna(float %a)", "ret i32 %r"
    ),
}
"""Definitions by name; `wait` makes more of them."""

INTRINSICS: Mapping[str, str] = {
    **{f"{_SREG}.{r}.{a}": f"declare i32 @{_SREG}.{r}.{a}()" for r in ("tid", "ctaid") for a in "xyz"},
    "llvm.nvvm.barrier0": "declare void @llvm.nvvm.barrier0()",
    "llvm.nvvm.cp.async.commit.group": "declare void @llvm.nvvm.cp.async.commit.group()",
    "llvm.nvvm.cp.async.wait.group": "declare void @llvm.nvvm.cp.async.wait.group(i32 immarg)",
    "llvm.nvvm.shfl.sync.bfly.i32": "declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)",
    "llvm.nvvm.f2tf32.rna": "declare i32 @llvm.nvvm.f2tf32.rna(float)",
    **{
        f"llvm.nvvm.cp.async.{how}": f"declare void @llvm.nvvm.cp.async.{how}(ptr addrspace(3), ptr addrspace(1))"
        for how in ("ca.shared.global.4", "ca.shared.global.8", "cg.shared.global.16")
    },
    **{
        f"llvm.nvvm.mma.{name}": f"declare {{ float, float, float, float }} @llvm.nvvm.mma.{name}"
        f"({', '.join([word] * 6 + ['float'] * 4)})"
        for name, word in (
            ("m16n8k16.row.col.f32.f32", "<2 x half>"), ("m16n8k16.row.col.bf16", "i32"),
            ("m16n8k8.row.col.tf32", "i32"),
        )
    },
}  # fmt: skip
"""Declarations of the intrinsics by name."""
