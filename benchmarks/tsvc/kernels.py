"""polyc's kernels of TSVC's loops, called as TSVC calls its own."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from benchmarks.tsvc.compilers import SIZES, Loops
from examples import tsvc
from polyc import op
from polyc.emit.compile import compile_kernel
from polyc.emit.kernel import Kernel
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.loop_ir.loops import For, Ramp, VLoad, walk
from polyc.emit.loop_ir.rewrite import stmt_exprs
from polyc.emit.lowering.lower import lower
from polyc.emit.mathlib import expand_function
from polyc.emit.targets import host
from polyc.poly.errors import ScheduleError
from polyc.poly.expr import walk as walk_expr
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

BITS_OF_ONE = float(np.float32(1).view(np.int32))
"""Four loops read the float 1.0 as an integer."""

NUMBERS = {
    "s272": {"t": BITS_OF_ONE},
    "s2710": {"x": BITS_OF_ONE},
    "s332": {"t": BITS_OF_ONE},
    "vpvts": {"s": BITS_OF_ONE},
}


@dataclass(frozen=True)
class Compiled:
    """A loop's kernel and its scalar build; `forbidden`: why loops have no lanes, with witnesses."""

    loop: tsvc.Loop
    kernel: Kernel
    scalar: jit.Library
    forbidden: tuple[str, ...]

    def address(self, scalar: bool) -> int:
        """Of the machine code."""
        native = self.kernel.native
        assert native is not None
        return self.scalar.address(self.kernel.name) if scalar else native.address

    def object(self, folder: Path) -> Path:
        """The machine code as an object file in a folder."""
        assert self.kernel.native is not None
        path = folder / f"{self.loop.name}.o"
        path.write_bytes(self.kernel.native.image)
        return path


def compiled(name: str) -> Compiled:
    """With the same freedom in arithmetic as its peers have, and without checks of subscripts, as they are."""
    loop = tsvc.load(name)
    scop = op(fast_math=True)(loop.operator.fn).scop(**loop.constants(SIZES))
    schedule = automatic(scop, host())
    kernel = compile_kernel(schedule.scop, schedule.tree, name=f"tsvc_{name}", checks=False)
    plain = expand_function(lower(scop, scop.tree, f"tsvc_{name}", host(), vectorise=False))
    library = jit.Library([_scalar_object(to_llvm(plain, host()))], [plain.name])
    return Compiled(loop, kernel, library, _forbidden(scop, schedule, kernel))


def _forbidden(scop: Scop, schedule: Schedule, kernel: Kernel) -> tuple[str, ...]:
    """Why loops have no lanes, with witnesses; where nothing forbids lanes, what they do not make faster."""
    found = [str(n) for n in schedule.notes if "stays serial" in str(n)]
    parted = [str(n) for n in schedule.notes if str(n).startswith("strips")]
    if parted:  # parts of the strips are serial: what forbids lanes for the loop as a whole
        whole = lower(scop, scop.tree, "whole", host(), vectorise=False)
        found += [*parted, *(_refusal(scop, s.loop) for s in walk(whole.body) if isinstance(s, For))]
    if found:
        return tuple(dict.fromkeys(filter(None, found)))
    body = [*walk(kernel.function.body)]
    if not any(isinstance(s, For) for s in body):
        return ("no dependence: no loop is left",)
    accesses = [x for s in body for e in stmt_exprs(s) for x in walk_expr(e) if isinstance(x, VLoad)]
    apart = sorted({x.array for x in accesses if not (isinstance(x.index[-1], Ramp) and x.index[-1].stride == 1)})
    why = f"elements of {', '.join(apart)} do not lie side by side" if apart else "accesses to memory bound it"
    return (f"no dependence: in lanes, but {why}",)


def _refusal(scop: Scop, loop: str) -> str:
    """What forbids lanes for a loop, without the folder of its file; empty if nothing does."""
    try:
        scop.schedule().vectorize(loop)
    except ScheduleError as refusal:
        return re.sub(r"\[[^\]]*/", "[", " ".join(str(refusal).split()), count=1)
    return ""


def _scalar_object(text: str) -> bytes:
    """What LLVM makes of a program without its vectorisers."""
    target = host()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


@dataclass
class Call:
    """A kernel bound to the arrays of a library, whose harness repeats it."""

    made: Compiled
    home: Loops
    numbers: dict[str, np.ndarray]
    result: np.ndarray
    pointers: Any
    sizes: Any

    def run(self, scalar: bool) -> float:
        """Seconds of the repetitions."""
        function = self.home.library.run_kernel
        function.restype = ctypes.c_double
        return float(function(ctypes.c_void_p(self.made.address(scalar)), self.pointers, self.sizes))


def call(made: Compiled, home: Loops) -> Call:
    """The kernel with the library's arrays as arguments."""
    loop, kernel, element = made.loop, made.kernel, np.dtype(home.kind)
    given = {n: 2.0 if n == "s2" else 1.0 for n in loop.arguments if loop.is_scalar(n)} | NUMBERS.get(loop.name, {})
    numbers = {n: np.array(v, element) for n, v in given.items()}
    result = np.zeros((), element)
    arguments = [numbers[n] if n in numbers else home.arrays[n] for n in loop.arguments]
    arrays = [*arguments, *(result for _ in kernel.scop.results)]
    names = [*kernel.scop.args, *kernel.scop.results]
    pointers = [arrays[names.index(b.name)].ctypes.data for b in kernel.function.buffers]
    bound = kernel.bind(tuple(x.shape for x in arguments))
    return Call(made, home, numbers, result, (ctypes.c_void_p * len(pointers))(*pointers), bound.params)
