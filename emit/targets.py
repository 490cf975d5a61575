"""Targets: this machine, the data files in `target_data/`, CPUs by LLVM's names, and files of users' own.

A new target needs no code: it is a TOML file.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from polyc.emit import cpus, matrix_permission
from polyc.poly.errors import BuildError
from polyc.poly.target import FLOATS, MATRIX_PRODUCTS, Target

DATA = Path(__file__).parent / "target_data"
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
HERE = ("cpu", "host", "native")
"""Names of this machine."""

GENERIC = "generic"
"""The name of what every machine of this architecture runs, and of graph passes for all hardware alone."""

BASE = "base"
"""The key of a file that names the target whose values hold for the keys that the file leaves out."""

MOST_BYTES = 1 << 40  # of a cache
MOST_OPERANDS = 1 << 20
LIMITS: Mapping[str, tuple[int, int]] = {
    "vector_bits": (64, 2048), "vector_registers": (4, 256), "l1": (1 << 10, MOST_BYTES), "l2": (1 << 10, MOST_BYTES),
    "l3": (1 << 10, MOST_BYTES), "line": (16, 4096), "fma_units": (1, 64), "threads": (1, 4096),
    "l1_ways": (3, 64), "page": (1 << 10, 1 << 30), "tlb_pages": (1, 1 << 20),
    "matrix_cycles": (1, 1024),
    "max_concat_inputs": (2, MOST_OPERANDS), "max_sum_inputs": (2, MOST_OPERANDS),
}  # fmt: skip
"""The least and the most of each number."""

OF_GRAPHS = ("floats", "passes", "max_concat_inputs", "max_sum_inputs")
"""What a file says about graphs, of a CPU or a GPU, and may leave out: all types, all passes, no limits."""

UNLIMITED = ("max_concat_inputs", "max_sum_inputs")
"""Numbers that may be 0: there is no limit."""

USUAL = ("l1_ways", "page", "tlb_pages", "matrix", "matrix_cycles", *OF_GRAPHS)
"""What a file may leave out: that of most cores holds."""

USUAL_WAYS = 8
"""Lines of a set of L1, where the system does not say it."""

POWERS = ("vector_bits", "line", "page")
"""Numbers that are powers of two."""


def names() -> list[str]:
    """Target names beside those of `polyc.emit.cpus` that `get` knows."""
    return ["cpu", GENERIC, *sorted(p.stem for p in DATA.glob("*.toml"))]


def get(name: str | Path | None = None) -> Target:
    """A target by name; None, `cpu`, `host` and `native` mean this machine, `NAME.toml` is a file.

    `generic` is what every machine of this architecture runs; graph passes that ask for the hardware do not run for it.

    Raises:
        BuildError: there is no such target (valid names are listed), or the file is wrong.
    """
    if name is None or name in HERE:
        return host()
    if is_file(name):
        return from_toml(Path(name))
    name = str(name)
    if name == GENERIC:
        return replace(_shipped(host().isa), name=GENERIC, passes="general")
    if name in names():
        return from_toml(DATA / f"{name}.toml")
    if name in cpus.names():
        return of_cpu(name)
    raise BuildError(unknown(name))


def is_known(target: object) -> bool:
    """Whether this is a CPU, or the name or the file of one; None is this machine."""
    if isinstance(target, str) and not is_file(target):
        return target in HERE or target in names() or target in cpus.names()
    return target is None or isinstance(target, Target) or is_file(target)


def is_file(name: object) -> bool:
    """Whether a target's name is that of a file."""
    return isinstance(name, Path) or (isinstance(name, str) and name.endswith(".toml"))


def unknown(name: str, more: Sequence[str] = ()) -> str:
    """What to say of a name that is no target; `more` are other names that were possible."""
    if name in gpu_names():
        return f"the target '{name}' is a GPU, and a CPU is asked for"
    known = [*names(), *more]
    hint = _near(name, [*known, *cpus.names(), *gpu_names()])
    return (
        f"unknown target '{name}'{hint}; known: {', '.join(known)}, CPUs by LLVM's names "
        f"(polyc doctor --json lists {len(cpus.names())}), GPUs ({', '.join(gpu_names())}), or a file NAME.toml"
    )


def _near(name: str, known: Sequence[str]) -> str:
    """Names that somebody may have meant."""
    import difflib

    near = difflib.get_close_matches(name, known, 3, 0.65)
    return f" (did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}?)" if near else ""


def gpu_names() -> list[str]:
    """Names of the GPU targets, which `polyc.emit.gpu.targets` reads."""
    return ["cuda", *sorted(p.stem for p in (DATA / "gpu").glob("*.toml"))]


def of_cpu(name: str) -> Target:
    """The target of a CPU of LLVM's. The sizes of caches are those of the shipped target with as wide vectors."""
    isa = cpus.isa_of(name)
    assert isa is not None
    able = cpus.features_of(replace(_shipped("x86-64"), isa=isa, cpu=name, features=""))
    bits, registers = _vectors(isa, set(able))
    like = "aarch64" if isa == "aarch64" else {512: "x86-64-v4", 256: "x86-64-v3"}.get(bits, "x86-64")
    return replace(
        _shipped(like), name=name, cpu=name, features="", vector_bits=bits, vector_registers=registers,
        matrix=_matrix({*able}),
    )  # fmt: skip


def _matrix(features: set[str]) -> str:
    """`Target.matrix` of a CPU with these features."""
    return ",".join(i for i, feature in MATRIX_PRODUCTS.items() if {"amx-tile", feature} <= features)


@functools.cache
def _shipped(name: str) -> Target:
    return from_toml(DATA / f"{name}.toml")


def from_toml(path: Path) -> Target:
    """A target from a data file. It has all the fields of `Target` but the name (and `USUAL`), or `base` and those that
    differ.

    Raises:
        BuildError: the file cannot be read, or a key is missing, unknown, of the wrong type or out of its range.
    """
    data, where = read_toml(path), f"target file {path.name}"
    base: dict[str, Any] = {}
    if BASE in data:
        named = data.pop(BASE)
        if not isinstance(named, str) or is_file(named):
            raise BuildError(f"{where}: '{BASE}' is the name of a target, not {named!r:.80}")
        try:
            like = get(named)
        except BuildError as error:
            raise BuildError(f"{where}: {error}") from None
        base = {f.name: getattr(like, f.name) for f in fields(Target) if f.name != "name"}
    wanted = {f.name: f.type for f in fields(Target) if f.name != "name"}
    wrong = sorted((set(data) - set(wanted)) | (set(wanted) - set(base) - set(data) - set(USUAL)))
    if wrong:
        raise BuildError(f"{where}: the key '{wrong[0]}' is missing or unknown")
    for key, value in data.items():
        kind = int if wanted[key] == "int" else str
        if type(value) is not kind:
            raise BuildError(f"{where}: '{key}' must be {kind.__name__}")
    target = Target(name=path.stem, **(base | data))
    if wrong_value := _wrong(target):
        raise BuildError(f"{where}: {wrong_value}")
    return target


def read_toml(path: Path) -> dict[str, Any]:
    """The data of a target file.

    Raises:
        BuildError: there is no such file, or it is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BuildError(f"cannot read the target file {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, of numbers of thousands of digits
        said = next(iter(str(error).splitlines()), "")
        raise BuildError(f"the target file {path} is no TOML: {said}") from None


def wrong_floats(floats: str) -> str:
    """Why a list of types of real numbers makes no sense; "" when it does."""
    listed = floats.split(",")
    if "f32" in listed and len(set(listed)) == len(listed) and set(listed) <= {*FLOATS.split(",")}:
        return ""
    return f"'floats' are f32 and others of {FLOATS}, each once, with commas, not {floats!r:.80}"


def _wrong(target: Target) -> str:
    """Which value of a target makes no sense, and why; "" when all do."""
    for key, (least, most) in LIMITS.items():
        value = getattr(target, key)
        if not value and key in UNLIMITED:
            continue
        if not least <= value <= most:
            return f"'{key}' is a number from {least} to {most}, not {value}"
        if key in POWERS and value & (value - 1):
            return f"'{key}' is a power of two, not {value}"
    if reason := wrong_floats(target.floats) or _wrong_matrix(target):
        return reason
    if not target.l1 <= target.l2 <= target.l3:
        return (
            f"caches grow: l1 <= l2 <= l3, not {target.l1}, {target.l2}, {target.l3} (without a third level: l3 = l2)"
        )
    arch = target.triple.split("-")[0].replace("arm64", "aarch64").replace("_", "-")
    if arch != target.isa:
        return f"'triple' is of {arch} and 'isa' is {target.isa}"
    if reason := _unknown_to_llvm(target.triple):
        return reason
    known = cpus.table().get(target.isa)
    if known is None:
        return ""
    if target.cpu not in (*known, "generic", host().cpu):
        return f"LLVM has no {target.isa} CPU '{target.cpu}'{_near(target.cpu, [*known])}"
    features = cpus.known_features(target.isa) | {f[1:] for f in host().features.split(",")}
    for f in filter(None, target.features.split(",")):
        if f[0] not in "+-" or f[1:] not in features:
            near = _near(f, [f"{sign}{name}" for name in sorted(features) for sign in "+-"])
            return f"'features' are like '+avx2,-fma', and '{f}' is none of {target.isa}{near}"
    return ""


def _wrong_matrix(target: Target) -> str:
    """Why a target cannot multiply matrices as it says; "" when it can."""
    for name in filter(None, target.matrix.split(",")):
        if name not in MATRIX_PRODUCTS:
            return f"'matrix' are some of {', '.join(MATRIX_PRODUCTS)}, with commas, not {target.matrix!r:.80}"
        if missing := {"amx-tile", MATRIX_PRODUCTS[name]} - cpus.features_of(target):
            return f"'matrix' says {name}, which needs the feature '{min(missing)}'"
    return ""


@functools.cache
def _unknown_to_llvm(triple: str) -> str:
    from polyc.emit.llvm import jit

    try:
        jit.check_triple(triple)
    except BuildError as error:
        return str(error)
    return ""


def own_instructions(target: Target) -> frozenset[str]:
    """The intrinsics that are one instruction of this machine and made of others elsewhere."""
    has = cpus.features_of(target)
    found: set[str] = set()
    if target.isa == "x86-64":
        found.add("dot_pairs")
    if {"x86-64": "avx512bf16", "aarch64": "bf16"}.get(target.isa) in has:
        found |= {"dot_bf16", "dot_bf16_add"}
    if target.isa == "x86-64" and "avx512vnni" in has and (target.vector_bits == 512 or "avx512vl" in has):
        found |= {"dot_bytes", "dot_bytes_add"}
    return frozenset(found)


def multiplies_codes(target: Target) -> bool:
    """Whether four products of bytes, the first operand's below 128, are a few instructions: `vpmaddubsw`, whose sums
    of two then never saturate, and `vpmaddwd`."""
    has = {128: "ssse3", 256: "avx2", 512: "avx512bw"}.get(target.vector_bits)
    return target.isa == "x86-64" and has in cpus.features_of(target)


def obstacle(target: Target) -> str | None:
    """Why code for `target` cannot run on this machine; None when it can."""
    here = host()
    if target.triple.split("-")[0] != here.triple.split("-")[0]:
        return f"code for {target.name} ({target.isa}) cannot run on this machine ({here.isa})"
    if target.vector_bits > here.vector_bits:
        return f"code for {target.name} needs {target.vector_bits}-bit vectors, this machine has {here.vector_bits}"
    missing = sorted(cpus.features_of(target) - cpus.features_of(here))
    if missing:
        return f"code for {target.name} needs the CPU feature '{missing[0]}', which this machine lacks"
    return None


def check_runs_here(target: Target) -> None:
    """Refuse to run code for another machine.

    Raises:
        BuildError: this machine is of another architecture or lacks a feature.
    """
    reason = obstacle(target)
    if reason is not None:
        raise BuildError(reason)


@functools.cache
def host() -> Target:
    """This machine: LLVM's CPU name and features, the caches that Linux reports.

    `POLYC_HOST=haswell` makes it count as that CPU, without what only the machine itself has.

    Raises:
        BuildError: `POLYC_HOST` is no CPU of this machine's architecture.
    """
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    isa = triple.split("-")[0].replace("arm64", "aarch64").replace("_", "-")
    features, cpu = dict(llvm.get_host_cpu_features()), llvm.get_host_cpu_name()
    if asked := os.environ.get("POLYC_HOST"):
        if cpus.isa_of(asked) != isa:
            near = _near(asked, cpus.names())
            raise BuildError(f"POLYC_HOST is '{asked}', which is no {isa} CPU that LLVM knows{near}")
        cpu = asked
        features |= dict.fromkeys(cpus.known_features(isa) - cpus.named_features(asked), False)
    if features.get("amx-tile") and not matrix_permission.granted():
        features |= dict.fromkeys((name for name in features if name.startswith("amx-")), False)
    on = {name for name, there in features.items() if there}
    bits, registers = _vectors(triple.split("-")[0], on)
    caches = _caches()
    l1, ways = caches.get(1, (32 << 10, None))
    return Target(
        name="cpu",
        triple=triple,
        cpu=cpu,
        features=",".join(("+" if there else "-") + name for name, there in sorted(features.items())),
        vector_bits=bits,
        vector_registers=registers,
        l1=l1,
        l2=caches.get(2, (256 << 10, None))[0],
        l3=caches.get(3, (8 << 20, None))[0],
        line=64,
        fma_units=2,
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        isa=isa,
        l1_ways=ways or USUAL_WAYS,
        matrix=_matrix(on),
    )


def _vectors(isa: str, on: set[str]) -> tuple[int, int]:
    """(bits, registers) of the widest vectors that a CPU with these features runs well."""
    if isa in ("aarch64", "arm64"):
        return 128, 32
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= on:
        return 512, 32
    return (256, 16) if "avx2" in on else (128, 16)


def _caches() -> dict[int, tuple[int, int | None]]:
    """Level -> bytes of the data cache and lines of a set, as far as the system tells."""
    out: dict[int, tuple[int, int | None]] = {}
    for index in sorted(CACHES.glob("index*")):
        try:
            if index.joinpath("type").read_text().strip() == "Instruction":
                continue
            size = index.joinpath("size").read_text().strip()
            level = int(index.joinpath("level").read_text())
        except (OSError, ValueError):
            continue
        unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        if size.rstrip("KM").isdigit():
            out[level] = int(size.rstrip("KM")) * unit, _ways(index)
    return out


def _ways(index: Path) -> int | None:
    """Lines of a set; 0 in the file: any line may lie anywhere, which some virtual machines say of all caches."""
    try:
        found = int(index.joinpath("ways_of_associativity").read_text())
    except (OSError, ValueError):
        return None
    least, most = LIMITS["l1_ways"]
    return found if least <= found <= most else None


def check_threads(threads: int | None) -> None:
    """Raise `BuildError` unless it is None (all cores) or a number of at least 1."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise BuildError(f"threads are a number of at least 1, not {threads!r}")
