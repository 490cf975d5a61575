"""CUDA text executed on this machine's CPU, through the header `shim.h`: for tests and for looking.

The text is the one that goes to a GPU. `check="races"` builds it with ThreadSanitizer (threads
ordered by barriers only; blocks not at all, unless 2048 threads run between them), `check="bounds"`
with AddressSanitizer and UndefinedBehaviorSanitizer; both run in a process of their own. Barriers
that diverge are always reported.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from polyc.emit import cache
from polyc.emit.c.plain import PLAIN
from polyc.emit.gpu.program import Program, sequence
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.loop_ir.loops import Function
from polyc.poly.errors import BuildError
from polyc.poly.target import GpuTarget

Order = Literal["forward", "reverse", "shuffled"]
Check = Literal["none", "races", "bounds"]

ORDERS: tuple[Order, ...] = ("forward", "reverse", "shuffled")
HEADER = Path(__file__).with_name("shim.h")
FLAGS = ("-std=gnu++17", "-w", "-fno-strict-aliasing", "-ffp-contract=off", "-fno-math-errno")
# Without optimisation the sanitizers see every access, and building takes half the time.
CHECKS: dict[str, tuple[str, ...]] = {
    "none": ("-O1", "-ftrivial-auto-var-init=pattern"),
    "races": ("-O0", "-g", "-fsanitize=thread"),
    "bounds": ("-O0", "-g", "-ftrivial-auto-var-init=pattern", "-fsanitize=address,undefined",
               "-fno-sanitize-recover=all", "-fsanitize-sections=polyc_shared"),
}  # fmt: skip
OPTIONS = {
    "TSAN_OPTIONS": "report_signal_unsafe=0:halt_on_error=1:exitcode=66",
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0:exitcode=65",
    "UBSAN_OPTIONS": "print_stacktrace=0",
}
TIMEOUT = 600  # seconds for one run


class ShimError(BuildError):
    """What went wrong inside the kernels; `kind` is `race`, `bounds`, `divergence` or `crash`."""

    code = "P311"

    def __init__(self, kind: str, message: str, details: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details


def compiler() -> str | None:
    """The C++ compiler: `$CXX`, g++ or clang++; None without one."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    return None


def shim_text(program: Program) -> str:
    """C++ that holds the kernels of a CUDA program and the table by which they are called."""
    lines = []
    dynamic = max((k.dynamic_shared for k in program.kernels.values()), default=0)
    if dynamic:
        lines.append(f"#define POLYC_DYNAMIC {dynamic}")
    lines += [f'#include "{HEADER.name}"', '#line 1 "kernels.cu"', program.text]
    table = []
    for number, kernel in enumerate(program.kernels.values()):
        casts = [
            f"*({PLAIN[a.dtype.name]} **)a[{k}]" if a.kind == "array" else f"*(int64_t *)a[{k}]"
            for k, a in enumerate(kernel.arguments)
        ]
        lines.append(f"static void polyc_call_{number}(void **a) {{ {kernel.name}({', '.join(casts)}); }}")
        table.append(f'{{"{kernel.name}", polyc_call_{number}, {len(kernel.arguments)}}}')
    lines.append(f'extern "C" const PolycKernel polyc_kernels[] = {{{", ".join(table)}}};')
    lines.append(f'extern "C" const unsigned polyc_kernel_count = {len(table)};')
    return "\n".join(lines) + "\n"


def build(program: Program, check: Check = "none", shared: bool = False) -> bytes:
    """The executable (or the shared object) for a CUDA program, from the cache when it is there.

    Raises:
        BuildError: no C++ compiler, or it refused the text.
    """
    found = compiler()
    if found is None:
        raise BuildError("no C++ compiler found (looked for $CXX, g++, clang++): CUDA text cannot run on this CPU")
    if program.language != "cuda":
        raise BuildError(f"the CPU shim runs CUDA text, not {program.language}")
    text = shim_text(program)
    kind = ("-shared", "-fPIC") if shared else ("-DPOLYC_MAIN",)
    options = (*FLAGS, *CHECKS[check], *kind)
    key = cache.make_key("shim", text, HEADER.read_text(encoding="utf-8"), " ".join(options), found)
    return cache.cached(key, lambda: _compile(found, text, options), ".so" if shared else ".exe")[0]


def _compile(found: str, text: str, options: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
        source, out = Path(folder, "kernels.cpp"), Path(folder, "kernels")
        source.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [found, *options, f"-I{HEADER.parent}", str(source), "-o", str(out), "-lm"], capture_output=True, text=True
        )
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:300])
            raise BuildError(f"{Path(found).name} refused the CUDA text: {first}")
        return out.read_bytes()


def run_on_shim(
    function: Function | Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    order: Order = "forward",
    check: Check = "none",
    seed: int = 0,
    target: GpuTarget | None = None,
) -> None:
    """Run a GPU function's CUDA text on `arrays` (all buffers by name, updated in place).

    Raises:
        ShimError: a race, an access out of bounds, a divergent barrier, a crash.
        BuildError: the text cannot be made or built.
    """
    from polyc.emit.gpu import targets

    program = function if isinstance(function, Program) else to_gpu(function, target or targets.get("sm_80"))
    image = build(program, check)
    order_of_calls = sequence(program, sizes)
    numbers = {name: k for k, name in enumerate([*arrays, *order_of_calls.scratch])}
    kernels = {k.name: n for n, k in enumerate(program.kernels.values())}
    with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
        job, exe = Path(folder, "job"), Path(folder, "kernels")
        exe.write_bytes(image)
        exe.chmod(0o700)
        places = {}
        with job.open("wb") as f:
            f.write(struct.pack("<3Q", ORDERS.index(order), seed, len(numbers)))
            for name, array in arrays.items():
                f.write(struct.pack("<Q", array.nbytes))
                places[name] = f.tell()
                f.write(array.tobytes())
            for nbytes in order_of_calls.scratch.values():
                f.write(struct.pack("<Q", nbytes) + b"\xff" * nbytes)
            f.write(struct.pack("<Q", len(order_of_calls.calls)))
            for call in order_of_calls.calls:
                head = (kernels[call.kernel.name], *call.grid, *call.kernel.threads, call.kernel.dynamic_shared)
                f.write(struct.pack("<9Q", *head, int(call.kernel.barriers)))
                for value in call.arguments:
                    f.write(struct.pack("<Qq", *((1, numbers[value]) if isinstance(value, str) else (0, value))))
        try:
            done = subprocess.run(
                [str(exe), str(job)], capture_output=True, text=True, errors="replace", timeout=TIMEOUT,
                env=os.environ | OPTIONS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ShimError("crash", f"the kernels did not end within {TIMEOUT} s", "") from None
        if done.returncode:
            raise _failure(done.returncode, done.stderr)
        raw = job.read_bytes()
    for name, array in arrays.items():
        if array.flags.writeable:
            array[...] = np.frombuffer(raw, array.dtype, array.size, places[name]).reshape(array.shape)


def _failure(code: int, report: str) -> ShimError:
    """The error for an exit code, with the line of the report that says most."""
    lines = [line.strip() for line in report.splitlines() if line.strip()]

    def first(*words: str) -> str:
        return next((line for line in lines if any(w in line for w in words)), lines[0] if lines else "no report")

    if code == 66:
        places = re.findall(r"#0 \S+ \S*kernels\.cu:(\d+)", report)
        where = (
            f"lines {' and '.join(places)}" if len(places) > 1 else f"line {', '.join(places)} and an earlier access"
        )
        return ShimError("race", f"data race between threads: {where} of the CUDA text", report)
    if code == 67:
        return ShimError("divergence", first("polyc shim").removeprefix("polyc shim: "), report)
    if code == 65 or "runtime error" in report:
        return ShimError("bounds", first("runtime error", "ERROR: AddressSanitizer"), report)
    return ShimError("crash", f"the kernels ended with code {code}: {first('polyc shim')}", report)
