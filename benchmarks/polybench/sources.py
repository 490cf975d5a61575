"""PolyBench/C's sources as shared objects: `run(void **arrays)` calls the kernel of one file for one size."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from polyc.poly.records import dataclass

WHERE = (
    "PolyBench/C 4.2.1 is at https://sourceforge.net/projects/polybench/ and, as a git repository, at "
    "https://github.com/MatthiasJReisinger/PolyBenchC-4.2.1: unpack it and give its folder with --polybench-source"
)
FAST = ("-O3", "-march=native", "-ffast-math")
POLLY = ("-mllvm", "-polly")
PARALLEL_POLLY = ("-mllvm", "-polly-parallel", "-mllvm", "-polly-omp-backend=LLVM", "-fopenmp")


@dataclass(frozen=True)
class Peer:
    """A way to make machine code of a kernel's C: its name in peers.csv, the command, threads, where its C is."""

    name: str
    command: tuple[str, ...]
    threads: int = 1
    pluto: bool = False


ORACLE = Peer("oracle", ("gcc", "-O2", "-ffp-contract=off"))  # float64 as written, no reassociation


def peers(threads: int, pluto: bool) -> list[Peer]:
    """Those of this machine, up to that many threads."""
    found = [Peer("gccf", ("gcc", *FAST))] if shutil.which("gcc") else []
    clang = next((c for c in ("clang-19", "clang") if shutil.which(c)), None)
    if clang is None:
        return found
    found.append(Peer("clangf", (clang, *FAST)))
    if _has_polly(clang):
        found.append(Peer("polly", (clang, *FAST, *POLLY)))
        if threads > 1:
            found.append(Peer("pollyp", (clang, *FAST, *POLLY, *PARALLEL_POLLY), threads))
    if pluto:
        found += [Peer("plutocl", (clang, *FAST, "-fopenmp"), t, pluto=True) for t in sorted({1, threads})]
    return found


def _has_polly(clang: str) -> bool:
    asked = [clang, *POLLY, "-x", "c", "-fsyntax-only", "-"]
    return subprocess.run(asked, input="", text=True, capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Folders:
    """PolyBench's sources, Pluto's output (or none), and where shared objects are kept."""

    source: Path
    pluto: Path | None
    built: Path


@dataclass(frozen=True)
class Parameter:
    """Of `kernel_NAME`: `kind` is "size", "scalar" or "array"; `type` of C; the names of an array's extents."""

    name: str
    kind: str
    type: str
    extents: tuple[str, ...] = ()


def source_of(folder: Path, kernel: str) -> Path:
    """The kernel's C file below a folder. Raises FileNotFoundError."""
    for path in sorted(folder.rglob(f"{kernel}.c")):
        return path
    raise FileNotFoundError(f"no {kernel}.c below {folder}: {WHERE}")


def parameters(text: str) -> list[Parameter]:
    """The parameters of the kernel's function in PolyBench's C."""
    found = re.search(r"void kernel_\w+\s*\((.*?)\)\s*\{", text, re.DOTALL)
    if not found:
        raise ValueError("no function kernel_... in PolyBench's style")
    made = []
    for part in re.split(r",(?![^()]*\))", found[1]):
        array = re.match(r"\s*(\w+)\s+POLYBENCH_(\d)D\s*\(([^)]*)\)", part)
        plain = re.match(r"\s*(\w+)\s+(\w+)\s*$", part)
        if array:
            name, *extents = (w.strip() for w in array[3].split(","))
            made.append(Parameter(name, "array", array[1], tuple(extents[: int(array[2])])))
        elif plain:
            made.append(Parameter(plain[2], "size" if plain[1] == "int" else "scalar", plain[1]))
        else:
            raise ValueError(f"a parameter that is read here as nothing: {part.strip()}")
    return made


def wrapper(path: Path, kernel: str, given: list[Parameter]) -> str:
    """C that includes the file and calls its kernel: scalars and arrays come by pointer, sizes are known."""
    values, place = [], 0
    for p in given:
        if p.kind == "size":
            values.append(p.name.upper())
            continue
        values.append(f"arrays[{place}]" if p.kind == "array" else f"*({p.type} *)arrays[{place}]")
        place += 1
    symbol = "kernel_" + kernel.replace("-", "_")
    return (
        f'#define main polybench_main\n#include "{path}"\n#undef main\n'
        f"void run(void **arrays, void *sizes, void *pool) {{ {symbol}({', '.join(values)}); }}\n"
    )


def build(peer: Peer, folders: Folders, kernel: str, sizes: Mapping[str, int], data: str) -> Path:
    """The shared object, made once for the same text and command. `data` is DOUBLE, FLOAT or INT.

    Raises:
        subprocess.CalledProcessError: the compiler fails.
        FileNotFoundError: a folder lacks the kernel.
    """
    original = source_of(folders.source, kernel)
    path = source_of(folders.pluto, kernel) if peer.pluto and folders.pluto else original
    text = wrapper(path, kernel, parameters(original.read_text(encoding="utf-8")))
    flags = [
        *peer.command, *(f"-D{n}={v}" for n, v in sizes.items()), f"-DDATA_TYPE_IS_{data}", "-w", "-shared", "-fPIC",
        f"-I{original.parent}",
        f"-I{source_of(folders.source, 'polybench').parent}",
    ]  # fmt: skip
    key = hashlib.sha256("\0".join([*flags, text, path.read_text(encoding="utf-8")]).encode()).hexdigest()[:16]
    made = folders.built / f"{kernel}-{peer.name}-{key}.so"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        c, unfinished = made.with_suffix(".c"), made.with_suffix(".part")
        c.write_text(text, encoding="utf-8")
        more = [str(c), str(source_of(folders.source, "polybench")), "-o", str(unfinished), "-lm"]
        subprocess.run([*flags, *more], check=True, capture_output=True, text=True)
        unfinished.rename(made)
    return made
