"""Running LLVM IR that is for a GPU on this CPU, and having PTX assembled.

The kernels' text is compiled for the CPU as it stands. In place of its helper functions (`emit.gpu.nvptx.helpers`),
which ask a GPU for something, it calls functions of the header that runs CUDA text here (`shim.h`): fibers, barriers,
shuffles, tensor cores. So what runs is the very text but for one intrinsic a helper.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import back_ends
import llvmlite.binding as llvm
import numpy as np

from polyc.emit.c.plain import PLAIN
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.nvptx.source import to_nvptx
from polyc.emit.gpu.program import Program
from polyc.emit.loop_ir.loops import Function
from polyc.poly.target import GpuTarget

_HELPER = re.compile(r"^define internal (\S+) @(polyc_\w+)\(([^)]*)\)[^{]*\{.*?^\}", re.MULTILINE | re.DOTALL)

# What the helpers do, by the functions of `shim.h`.
_PLACES = "\n".join(
    f"int twin_{kind}_{a}() {{ return (int){kind}Idx.{a}; }}" for kind in ("thread", "block") for a in "xyz"
)
STAND_INS = """
void twin_barrier() { polyc_barrier(0); }
void twin_end_copies() { polyc_end_copies(); }
int twin_exchange(int a, int bit) { return __shfl_xor_sync(0xffffffffu, a, bit); }
int twin_to_tf32(float a) { return (int)polyc_to_tf32(a); }
void twin_copy_4(void *to, void *from) { polyc_begin_copy(to, from, 4); }
void twin_copy_8(void *to, void *from) { polyc_begin_copy(to, from, 8); }
void twin_copy_16(void *to, void *from) { polyc_begin_copy(to, from, 16); }
void twin_wait_0() { polyc_wait_for_copies(0); }
void twin_wait_1() { polyc_wait_for_copies(1); }
void twin_wait_2() { polyc_wait_for_copies(2); }
static float twin_f16(uint16_t a) { _Float16 h; memcpy(&h, &a, 2); return (float)h; }
static float twin_bf16(uint16_t a) { uint32_t u = (uint32_t)a << 16; float f; memcpy(&f, &u, 4); return f; }
void twin_multiply_f16(float *c, uint32_t *a, uint32_t *b) { polyc_multiply(c, a, b, twin_f16); }
void twin_multiply_bf16(float *c, uint32_t *a, uint32_t *b) { polyc_multiply(c, a, b, twin_bf16); }
void twin_multiply_tf32(float *c, uint32_t *a, uint32_t *b) { polyc_multiply_tf32(c, a, b); }
"""


def twin(text: str) -> str:
    """The module for this CPU: helpers are called by other names and defined elsewhere."""
    text = _HELPER.sub(
        lambda m: f"declare {m[1]} @{m[2]}({', '.join(p.split()[0] for p in m[3].split(',') if p)})", text
    )
    text = re.sub(r"^declare .*@llvm\.nvvm\..*$", "", text, flags=re.MULTILINE)
    text = text.replace("@polyc_dynamic", "@DYNAMIC").replace("@polyc_", "@twin_").replace("@DYNAMIC", "@polyc_dynamic")
    text = re.sub(r"addrspacecast \(ptr addrspace\(3\) (@\w+) to ptr\)", r"\1", text)
    text = re.sub(
        r"= internal addrspace\(3\) global (.*) undef,", r'= internal global \1 undef, section "polyc_shared",', text
    )
    text = text.replace("external addrspace(3)", "external").replace("ptx_kernel ", "")
    return re.sub(r"^target triple.*$", f'target triple = "{llvm.get_process_triple()}"', text, flags=re.MULTILINE)


def assembly(text: str) -> str:
    """Machine code of the twin as assembly. No passes: they would take shared memory for this thread's alone."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(twin(text))
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1, reloc="pic"
    )
    return str(machine.emit_assembly(module))


def program(fn: Function, target: GpuTarget) -> Program:
    """A program for the shim whose kernels are LLVM's code."""
    made = to_nvptx(fn, target)
    calls, kernels = [], {}
    for launch, k in made.kernels.items():
        types = [f"{PLAIN[a.dtype.name]} *" if a.kind == "array" else "int64_t " for a in k.arguments]
        parameters = ", ".join(f"{t}a{n}" for n, t in enumerate(types))
        given = ", ".join(f"a{n}" for n in range(len(types)))
        calls.append(f'extern "C" void {k.name}({parameters});')
        calls.append(f"static void call_{k.name}({parameters}) {{ {k.name}({given}); }}")
        kernels[launch] = replace(k, name=f"call_{k.name}")
    code = assembly(made.text).replace('.section\t".note.GNU-stack"', ".section .note.GNU-stack")
    assert ")TWIN" not in code
    helpers = f'extern "C" {{{_PLACES}{STAND_INS}}}'
    text = f'{helpers}\n__asm__(R"TWIN(\n{code}\n.text\n)TWIN");\n' + "\n".join(calls)
    return Program("cuda", text, kernels, fn)


def on_twin(scop: Any, fn: Function, args: Sequence[Any], target: GpuTarget, **how: Any) -> list[np.ndarray]:
    """The updated arrays after running the LLVM IR of a GPU function here."""
    arrays, sizes = back_ends.arrays_of(scop, args)
    shim.run_on_shim(program(fn, target), {b.name: arrays[b.name] for b in fn.buffers}, sizes, **how)
    return [arrays[n] for n in back_ends.updated(scop)]


PTXAS = shutil.which("ptxas")


def assembled(ptx: str, target: GpuTarget) -> str:
    """What NVIDIA's assembler says of a PTX text that it takes. Raises AssertionError with its complaint."""
    assert PTXAS is not None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "k.ptx")
        source.write_text(ptx, encoding="ascii")
        done = subprocess.run(
            [PTXAS, "-v", f"-arch={target.arch}", str(source), "-o", str(Path(folder, "k.cubin"))],
            capture_output=True, text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout + done.stderr
