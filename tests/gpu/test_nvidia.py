"""Targets as data, occupancy against NVIDIA's own header, and machine code with its resources."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import hand_launches
import pytest
from texts import needs_nvidia

from examples.matmul import matmul
from polyc.emit.gpu import targets
from polyc.emit.gpu.devices import nvidia
from polyc.emit.gpu.resources import blocks_per_sm, lines, read_log
from polyc.emit.gpu.text.source import to_gpu
from polyc.poly.errors import BuildError

NVIDIA = [n for n in targets.names() if n.startswith("sm_")]


def test_targets_are_data(tmp_path: Path) -> None:
    assert {"sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "opencl", "cuda"} <= set(targets.names())
    for name in NVIDIA:
        t = targets.get(name)
        assert t.arch == name and t.shared + t.shared_reserved <= t.sm_shared and t.kind == "cuda"
    with pytest.raises(BuildError, match="unknown GPU target 'sm_1'; known: cuda, opencl, sm_70"):
        targets.get("sm_1")
    text = (targets.DATA / "gpu" / "sm_80.toml").read_text()
    for old, new, message in (
        ("warp = 32\n", "", "the key 'warp' is missing"),
        ("warp = 32", "warp = 32\nlanes = 3", "the key 'lanes' is missing or unknown"),
        ("warp = 32", "warp = 'x'", "'warp' must be int"),
        ('kind = "cuda"', 'kind = "metal"', "'kind' must be cuda or opencl"),
        ("max_grid = [2147483647, 65535, 65535]", "max_grid = 3", "'max_grid' must be a list of int"),
    ):
        path = tmp_path / "t.toml"
        path.write_text(text.replace(old, new))
        with pytest.raises(BuildError, match=re.escape(message)):
            targets.from_toml(path)


LOG = """ptxas info    : Compiling entry function 'matmul_0' for 'sm_80'
ptxas info    : Function properties for matmul_0
    272 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 2176 bytes smem, 400 bytes cmem[0]
"""


def test_what_ptxas_says_is_read() -> None:
    target = targets.get("sm_80")
    (r,) = read_log(LOG, to_gpu(hand_launches.tiled_matmul(), target), target)
    assert (r.registers, r.stack, r.spill_stores, r.spill_loads, r.shared) == (128, 272, 8, 12, 2176)
    assert (r.blocks, r.limit, r.occupancy) == (2, "registers", 0.25)
    assert lines([r]) == [
        "matmul_0: 256 threads, 128 registers, 20 bytes spilled, 2176 bytes shared, 2 blocks an SM "
        "(25 % of its warps, limited by registers)"
    ]


def header() -> Path | None:
    """NVIDIA's occupancy calculator, where a toolkit is installed."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or shutil.which("g++") is None:
        return None
    said = subprocess.run([nvcc, "--dryrun", "-c", "x.cu"], capture_output=True, text=True).stderr
    top = re.search(r"TOP=(\S+)", said)
    found = [*Path(top[1]).resolve().rglob("cuda_occupancy.h")] if top else []
    return found[0] if found else None


@pytest.mark.long
@pytest.mark.skipif(header() is None, reason="no CUDA toolkit with cuda_occupancy.h, or no g++")
def test_occupancy_is_nvidias(tmp_path: Path) -> None:
    cases, rows = [], []
    for name in NVIDIA:
        t = targets.get(name)
        for threads in (32, 96, 128, 256, 512, 1024):
            for registers in (16, 37, 64, 128, 255):
                for shared in (0, 1000, 33 * 1024, 48 * 1024):
                    if registers * threads <= 65536:
                        cases.append((t, threads, registers, shared))
                        digits = name.removeprefix("sm_").rstrip("a")
                        rows.append(f"{{{digits[0]},{digits[1]},{threads},{registers},{shared},{t.sm_threads},"
                                    f"{t.sm_shared},{t.shared},{t.shared_reserved}}}")  # fmt: skip
    source = tmp_path / "o.cpp"
    source.write_text(f"""#include <initializer_list>
#include <cstdio>
#include "{header()}"
int main() {{
  int rows[][9] = {{{",".join(rows)}}};
  for (auto &r : rows) {{
    cudaOccDeviceProp p = {{}};
    p.computeMajor = r[0]; p.computeMinor = r[1]; p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = r[5];
    p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536; p.warpSize = 32; p.sharedMemPerBlock = 49152;
    p.sharedMemPerMultiprocessor = r[6]; p.numSms = 80; p.sharedMemPerBlockOptin = r[7];
    p.reservedSharedMemPerBlock = r[8];
    cudaOccFuncAttributes a = {{}};
    a.maxThreadsPerBlock = 1024; a.numRegs = r[3]; a.sharedSizeBytes = r[4]; a.partitionedGCConfig = PARTITIONED_GC_OFF;
    a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = r[7];
    cudaOccDeviceState s = {{}};
    s.carveoutConfig = 100; /* percent: as much shared memory as there is */
    cudaOccResult o;
    int e = cudaOccMaxActiveBlocksPerMultiprocessor(&o, &p, &a, &s, r[2], 0);
    printf("%d\\n", e ? -e : o.activeBlocksPerMultiprocessor);
  }}
}}""")
    subprocess.run(["g++", "-w", str(source), "-o", str(tmp_path / "o")], check=True)
    said = subprocess.run([tmp_path / "o"], capture_output=True, text=True, check=True).stdout.split()
    wrong = [
        (t.name, threads, registers, shared, blocks_per_sm(t, threads, registers, shared), int(theirs))
        for (t, threads, registers, shared), theirs in zip(cases, said, strict=True)
        if blocks_per_sm(t, threads, registers, shared)[0] != int(theirs)
    ]
    assert len(cases) > 500 and not wrong


@needs_nvidia
@pytest.mark.parametrize("name", ["sm_80", "sm_90"])
def test_the_product_compiles_without_spills(name: str) -> None:
    kernel = matmul.compile(target=name)
    for r in kernel.cubin().resources:
        assert r.registers <= 255 and r.spill_loads == r.spill_stores == 0 and r.blocks > 0
    assert "registers" in kernel.source("ptxas") and kernel.report()["resources"]


@needs_nvidia
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.long
def test_nvcc_and_nvrtc_both_compile() -> None:
    target = targets.get("sm_90a")
    program = to_gpu(hand_launches.tiled_matmul(), target)
    image, log = nvidia._with_nvcc(program.text, target.arch)
    assert image[:4] == b"\x7fELF" and read_log(log, program, target)[0].registers > 0


@needs_nvidia
def test_a_refused_text_is_one_line() -> None:
    target = targets.get("sm_80")
    program = to_gpu(hand_launches.tiled_matmul(), target)
    broken = type(program)("cuda", program.text + "nonsense", program.kernels, program.function)
    with pytest.raises(BuildError, match="refused the generated CUDA: .*error") as error:
        nvidia.compile_cubin(broken, target)
    assert "\n" not in str(error.value)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "compiler", lambda: None)
    kernel = matmul.compile(target="sm_90")
    with pytest.raises(BuildError, match="no CUDA compiler found .looked for NVRTC"):
        kernel.cubin()
    assert "resources" not in kernel.report()
    with pytest.raises(BuildError, match="target opencl has no machine code before it meets a device"):
        matmul.compile(target="opencl").cubin()
    with pytest.raises(BuildError, match="no source of kind 'asm'; choose from loops, cuda, opencl, nvptx, ptx, ptxas"):
        kernel.source("asm")
    assert "__global__" in matmul.compile(target="opencl").source("cuda")
