"""Targets: this machine, and the data files in `target_data/`. A new one needs no code."""

from __future__ import annotations

import functools
import os
import tomllib
from dataclasses import fields
from pathlib import Path

from polyc.poly.errors import BuildError
from polyc.poly.target import Target

DATA = Path(__file__).parent / "target_data"
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def names() -> list[str]:
    """All target names that `get` knows."""
    return ["cpu", *sorted(p.stem for p in DATA.glob("*.toml"))]


def get(name: str | None = None) -> Target:
    """A target by name; None, `cpu` and `host` mean this machine.

    Raises:
        BuildError: there is no such target (valid names are listed).
    """
    if name in (None, "cpu", "host"):
        return host()
    path = DATA / f"{name}.toml"
    if name not in names():
        raise BuildError(f"unknown target '{name}'; known: {', '.join(names())}")
    return from_toml(path)


def from_toml(path: Path) -> Target:
    """A target from a data file.

    Raises:
        BuildError: a key is missing, unknown or of the wrong type.
    """
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    wanted = {f.name: f.type for f in fields(Target) if f.name != "name"}
    wrong = sorted(set(wanted) ^ set(data))
    if wrong:
        raise BuildError(f"target file {path.name}: the key '{wrong[0]}' is missing or unknown")
    for key, kind in wanted.items():
        if not isinstance(data[key], int if kind == "int" else str):
            raise BuildError(f"target file {path.name}: '{key}' must be {kind}")
    return Target(name=path.stem, **data)


def own_instructions(target: Target) -> frozenset[str]:
    """The intrinsics that are one instruction of this machine and made of others elsewhere."""
    needed = {"x86-64": "+avx512bf16", "aarch64": "+bf16"}.get(target.isa)
    return frozenset(("dot_bf16", "dot_bf16_add") if needed in target.features.split(",") else ())


def obstacle(target: Target) -> str | None:
    """Why code for `target` cannot run on this machine; None when it can."""
    here = host()
    if target.triple.split("-")[0] != here.triple.split("-")[0]:
        return f"code for {target.name} ({target.isa}) cannot run on this machine ({here.isa})"
    if target.vector_bits > here.vector_bits:
        return f"code for {target.name} needs {target.vector_bits}-bit vectors, this machine has {here.vector_bits}"
    have = set(here.features.split(","))
    missing = [f for f in target.features.split(",") if f.startswith("+") and f not in have]
    if missing:
        return f"code for {target.name} needs the CPU feature '{missing[0][1:]}', which this machine lacks"
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
    """This machine: LLVM's CPU name and features, the caches that Linux reports."""
    import llvmlite.binding as llvm

    triple = llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    on = {name for name, there in features.items() if there}
    bits, registers = _vectors(triple, on)
    caches = _cache_sizes()
    return Target(
        name="cpu",
        triple=triple,
        cpu=llvm.get_host_cpu_name(),
        features=",".join(("+" if there else "-") + name for name, there in sorted(features.items())),
        vector_bits=bits,
        vector_registers=registers,
        l1=caches.get(1, 32 << 10),
        l2=caches.get(2, 256 << 10),
        l3=caches.get(3, 8 << 20),
        line=64,
        fma_units=2,
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        isa=triple.split("-")[0].replace("_", "-"),
    )


def _vectors(triple: str, on: set[str]) -> tuple[int, int]:
    """(bits, registers) of the widest vectors that the CPU runs well."""
    if triple.startswith("aarch64"):
        return 128, 32
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= on:
        return 512, 32
    return (256, 16) if "avx2" in on else (128, 16)


def _cache_sizes() -> dict[int, int]:
    """Level -> bytes of data caches, as far as the system tells."""
    out: dict[int, int] = {}
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
            out[level] = int(size.rstrip("KM")) * unit
    return out


def check_threads(threads: int | None) -> None:
    """Raise `BuildError` unless it is None (all cores) or a number of at least 1."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise BuildError(f"threads are a number of at least 1, not {threads!r}")
