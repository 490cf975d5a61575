"""`polyc doctor`: what this machine has, found by looking."""

from __future__ import annotations

import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("polyc", "islpy", "llvmlite", "cgen", "numpy", "onnx", "onnxruntime", "pycuda", "pyopencl", "torch")


def examine(measure: bool = False) -> dict[str, Any]:
    """Everything found, as plain data (the `--json` form). `measure`: speeds again, not from the cache."""
    from polyc.emit import cache, cpus, targets
    from polyc.emit.c.cc import find_compiler
    from polyc.emit.gpu import devices
    from polyc.emit.gpu.devices import nvidia, shim
    from polyc.graph_driver.backends.registry import OWN, backends, named, problems
    from polyc.graph_driver.bench.calibration import machine

    host = targets.host()
    speed = machine(host, measure)
    compiler = find_compiler()
    folder = cache.cache_folder()
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": host.cpu,
        "vector_bits": host.vector_bits,
        "vector_registers": host.vector_registers,
        "threads": host.threads,
        "caches": {"l1": host.l1, "l2": host.l2, "l3": host.l3},
        "measured": {
            "flops_per_second": speed.flops_per_second,
            "copied_per_second": speed.copied_per_second,
            **speed.data(),
        },
        "targets": targets.names(),
        "cpus": {isa: list(found) for isa, found in cpus.table().items()},
        "gpu_targets": list(named("gpu").targets()),
        "backends": {b.name: list(b.targets()) for b in backends()},
        "installed_backends": [b.name for b in backends() if b not in OWN],
        "broken_backends": list(problems()),
        "c_compiler": None if compiler is None else _first_line([compiler, "--version"]),
        "nvcc": _tool("nvcc"),
        "cuda_driver": _has_library("libcuda.so.1"),
        "cuda_compiler": nvidia.compiler(),
        "devices": devices.found(),
        "cxx": shim.compiler(),
        "cache": {"folder": str(folder), "writable": _writable(cache), "bytes": _size(folder)},
        "packages": {name: _version(name) for name in PACKAGES},
    }


def doctor_lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    caches = found["caches"]
    yes = {True: "yes", False: "no"}
    m = found["measured"]
    rates = ", ".join(f"{n} {m['read'][n]:.1f} read {m['write'][n]:.1f} written" for n in m["read"])

    def shown(name: str) -> str:
        """A back end, with its targets if it is installed beside polyc."""
        return f"{name} ({', '.join(found['backends'][name])})" if name in found["installed_backends"] else name

    lines = [
        f"system        {found['system']}, Python {found['python']}",
        f"CPU           {found['cpu']}: {found['vector_bits']}-bit vectors, {found['vector_registers']} registers, "
        f"{found['threads']} threads",
        f"caches        L1 {caches['l1'] >> 10} KiB, L2 {caches['l2'] >> 10} KiB, L3 {caches['l3'] >> 10} KiB",
        f"measured      {m['hertz'] / 1e9:.2f} GHz, {m['flops_per_second'] / 1e9:.0f} GFLOP/s in f32 multiply-adds, "
        f"{m['copied_per_second'] / 1e9:.1f} GB/s copied; one thread",
        f"              bytes a cycle: {rates}; cycles: {m['call']:.0f} a call, {m['entry']:.0f} a parallel loop",
        f"targets       {', '.join(found['targets'])}",
        f"              LLVM's CPUs: {', '.join(f'{len(c)} {isa}' for isa, c in found['cpus'].items())} "
        "(--json lists them); files of your own: NAME.toml",
        f"C compiler    {found['c_compiler'] or 'none (not needed; only target c uses one)'}",
        f"GPU targets   {', '.join(found['gpu_targets'])}",
        f"back ends     {', '.join(map(shown, found['backends']))}",
        *(f"              {line}" for line in found["broken_backends"]),
        f"CUDA          compiler: {found['cuda_compiler'] or 'none'}; nvcc: {found['nvcc'] or 'none'}; "
        f"driver: {yes[found['cuda_driver']]}; g++ to run CUDA text here: {found['cxx'] or 'none'}",
        *(f"              {interface}: {text}" for interface, text in found["devices"].items()),
        f"cache         {found['cache']['folder']} ({found['cache']['bytes'] >> 20} MiB, "
        f"writable: {yes[found['cache']['writable']]})",
        "packages      " + ", ".join(f"{n} {v or '-'}" for n, v in found["packages"].items()),
    ]
    return lines


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _tool(name: str) -> str | None:
    path = shutil.which(name)
    return None if path is None else _last_line([path, "--version"])


def _first_line(command: list[str]) -> str:
    return (_output(command) or ["?"])[0]


def _last_line(command: list[str]) -> str:
    return (_output(command) or ["?"])[-1]


def _output(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{command[0]} does not run: {error}"]
    return done.stdout.strip().splitlines()


def _has_library(name: str) -> bool:
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _writable(cache: Any) -> bool:
    key = cache.make_key("doctor")
    cache.put(key, b"doctor")
    return cache.get(key) == b"doctor"


def _size(folder: Any) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
