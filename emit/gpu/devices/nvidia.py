"""CUDA text to machine code: NVRTC or nvcc, whichever is there; neither needs a driver."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from polyc.emit import cache
from polyc.emit.gpu.program import KernelText
from polyc.emit.gpu.resources import Resources, read_log
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.target import GpuTarget

LOOKED_FOR = "looked for NVRTC (packages cuda-bindings and nvidia-cuda-nvrtc) and nvcc"
# Products and sums are contracted in the loop IR, where it is allowed, and nowhere else.
OPTIONS = ("-fmad=false", "-std=c++17")


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of a program's kernels for one architecture, and what each of them takes."""

    image: bytes
    resources: tuple[Resources, ...]
    compiler: str


@functools.cache
def compiler() -> str | None:
    """`nvrtc 13.0`, or `nvcc` with its release; None without either. NVRTC is several times faster."""
    try:
        version = _checked(_nvrtc().nvrtcVersion())
        return f"nvrtc {version[0]}.{version[1]}"
    except (ImportError, RuntimeError, OSError):
        pass
    path = shutil.which("nvcc")
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True)
    release = next((line for line in done.stdout.splitlines() if "release" in line), "")
    return f"nvcc {release.partition('release ')[2].partition(',')[0]}" if done.returncode == 0 else None


def compile_cubin(program: KernelText, target: GpuTarget) -> Cubin:
    """Machine code for `target`, from the cache when it is there.

    Raises:
        BuildError: no compiler, or it refused the text.
    """
    found = compiler()
    if found is None:
        raise BuildError(f"no CUDA compiler found ({LOOKED_FOR})")
    key = cache.make_key("cubin", program.text, target.arch, " ".join(OPTIONS), found)
    build = _with_nvrtc if found.startswith("nvrtc") else _with_nvcc
    entry, _ = cache.cached(key, lambda: _packed(*build(program.text, target.arch)), ".cubin")
    size = int.from_bytes(entry[:8], "little")
    log, image = entry[8 : 8 + size].decode(), entry[8 + size :]
    return Cubin(image, tuple(read_log(log, program, target)), found)


def _packed(image: bytes, log: str) -> bytes:
    text = log.encode()
    return len(text).to_bytes(8, "little") + text + image


def _nvrtc() -> Any:
    from cuda.bindings import nvrtc

    return nvrtc


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    if int(result[0]):
        raise RuntimeError(f"NVRTC: {result[0]}")
    return result[1:]


def _with_nvrtc(text: str, arch: str) -> tuple[bytes, str]:
    nvrtc = _nvrtc()
    (program,) = _checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], []))
    try:
        options = [o.encode() for o in (f"-arch={arch}", *OPTIONS, "--ptxas-options=-v")]
        failed = int(nvrtc.nvrtcCompileProgram(program, len(options), options)[0])
        (size,) = _checked(nvrtc.nvrtcGetProgramLogSize(program))
        log = b" " * size
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        text_log = log.rstrip(b"\0 ").decode(errors="replace")
        if failed:
            raise BuildError(f"NVRTC refused the generated CUDA: {_first_error(text_log)}")
        (size,) = _checked(nvrtc.nvrtcGetCUBINSize(program))
        image = b" " * size
        _checked(nvrtc.nvrtcGetCUBIN(program, image))
        return image, text_log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _with_nvcc(text: str, arch: str) -> tuple[bytes, str]:
    number = arch.removeprefix("sm_")
    with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
        source, out = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        source.write_text(text, encoding="utf-8")
        code = f"-gencode=arch=compute_{number},code=sm_{number}"
        done = subprocess.run(
            ["nvcc", "-cubin", code, *OPTIONS, "-Xptxas=-v", str(source), "-o", str(out)],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise BuildError(f"nvcc refused the generated CUDA: {_first_error(done.stderr)}")
        return out.read_bytes(), done.stdout + done.stderr


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
