"""Building C text with the compiler that is there, and loading the result."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from polyc.poly.errors import BuildError

# Vectors are written out, so the compiler need not look for more, and gcc 12 goes wrong where it does: it drops a
# negation in front of a lane-wise shift, and sums in order down an array (`s += x[-j]`, unrolled) take wrong elements
# (gcc PR tree-optimization/110381).
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off",
    "-fno-math-errno", "-fno-trapping-math", "-fno-tree-vectorize", "-fno-predictive-commoning", "-w",
)  # fmt: skip
# gcc 12 fails in forwprop on some conversions of vectors wider than a register (convert_mode_scalar).
AFTER_INTERNAL_ERROR = ("-fno-tree-forwprop",)


def flags(source: str) -> tuple[str, ...]:
    """The compiler's options for this text; OpenMP only where it is used (not all clangs have it)."""
    return (*FLAGS, "-fopenmp") if "#pragma omp" in source else FLAGS


def find_compiler() -> str | None:
    """Path of `$CC`, gcc, clang or cc, whichever is there first; None without one."""
    for name in (os.environ.get("CC"), "gcc", "clang", "cc"):
        path = shutil.which(name) if name else None
        if path:
            return path
    return None


def compilers() -> list[str]:
    """gcc and clang (the newest of `clang`, `clang-19`, ...), as far as they are on PATH."""
    clangs = ["clang", *(f"clang-{version}" for version in range(40, 10, -1))]
    found = (next((name for name in names if shutil.which(name)), None) for names in (["gcc"], clangs))
    return [name for name in found if name is not None]


def build_shared(source: str, link: Sequence[str] = ()) -> bytes:
    """The shared object made from C text; `link` are further options for the linker.

    Raises:
        BuildError: no compiler on this machine, the compiler refused, or no room to write.
    """
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("no C compiler found (looked for $CC, gcc, clang, cc): use the llvm back end or install gcc")
    try:
        with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
            text, shared = Path(folder, "kernel.c"), Path(folder, "kernel.so")
            text.write_text(source, encoding="utf-8")
            command = [compiler, *flags(source), str(text), "-o", str(shared), *link, "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode and "internal compiler error" in done.stderr:
                done = subprocess.run([*command, *AFTER_INTERNAL_ERROR], capture_output=True, text=True)
            if done.returncode:
                first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
                raise BuildError(f"{Path(compiler).name} refused the generated C: {first}")
            return shared.read_bytes()
    except OSError as error:
        raise BuildError(f"cannot build C code in a temporary folder: {error.strerror or error}") from None


def load_shared(image: bytes) -> ctypes.CDLL:
    """Load a shared object from memory (through a temporary file that is removed at once).

    Raises:
        BuildError: the image is damaged or made for another machine, or no room to write.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
            path = Path(folder, "kernel.so")
            path.write_bytes(image)
            return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"cannot load the compiled kernel: {error}") from None
