"""The part of a compiled directory that is of a GPU: kernels, launches and machine code.

    code.bin        kernels and launches as text, a kernel of the plan after another (`Recorded.to_json`)
    natives.bin     machine code of the kernels that run on the CPU beside it
    cubins.bin      their machine code, where a CUDA compiler was here: such a directory runs without one
    kernels/        the sources and the machine code again, a file each: to look at and to link elsewhere
    resources.json  registers, spills, shared memory and occupancy of each kernel

Loading reads the first two; the others are copies for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.emit.gpu.devices import nvidia
from polyc.emit.gpu.program import Recorded
from polyc.graph_driver.backends.cpu import LLVM
from polyc.graph_driver.backends.gpu.code import GpuCode
from polyc.graph_driver.backends.gpu.natives import NativeKernel
from polyc.graph_driver.backends.protocol import CODE, Backend, Platform, Read, Saved

if TYPE_CHECKING:
    from polyc.graph_driver.planning.plan import Plan

CUBINS = "cubins.bin"
NATIVES = "natives.bin"


def blobs(code: GpuCode) -> tuple[list[bytes], list[bytes]]:
    """Launches and machine code (none without a compiler) of all kernels, in order."""
    texts = [recorded.to_json().encode() for recorded, _ in code.kernels.values()]
    if code.cubins or code.target.kind != "cuda" or nvidia.compiler() is None:
        return texts, list(code.cubins.values())
    return texts, [nvidia.compile_cubin(r.text, code.target).image for r, _ in code.kernels.values()]


def saved(code: GpuCode) -> Saved:
    """What a directory keeps of them."""
    texts, cubins = blobs(code)
    entries = {
        "gpu": asdict(code.target),
        "symbols": [*code.kernels, *code.natives],
        "orders": [list(order) for _, order in code.kernels.values()],
        "code": [len(b) for b in texts],
        "cubins": [len(b) for b in cubins],
    }
    files = {CODE: texts, CUBINS: cubins}
    if code.natives:
        entries["natives"] = [[symbol, list(k.order), len(k.image)] for symbol, k in code.natives.items()]
        entries["cpu"] = asdict(code.cpu or code.platform.host)
        files[NATIVES] = [k.image for k in code.natives.values()]
    return Saved(entries, files)


def write_for_people(code: GpuCode, cubins: Sequence[bytes], folder: Path) -> None:
    """Sources, machine code, and what it takes."""
    (folder / "kernels").mkdir()
    suffix = "cu" if code.target.kind == "cuda" else "cl"
    for symbol, (recorded, _) in code.kernels.items():
        (folder / "kernels" / f"{symbol}.{suffix}").write_text(recorded.text.text, encoding="utf-8")
    for symbol, image in zip(code.kernels, cubins):
        (folder / "kernels" / f"{symbol}.cubin").write_bytes(image)
    if code.target.kind == "cuda" and nvidia.compiler() is not None:
        found = [asdict(r) for r in code.resources()]
        (folder / "resources.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


def read_code(backend: Backend, data: Mapping[str, Any], plan: Plan, read: Read) -> GpuCode:
    """The code of a GPU from a manifest and its files.

    Raises:
        ValueError, TypeError, KeyError, BuildError: they do not fit together.
    """
    target = backend.machine_from(data["gpu"])
    texts, cubins = (read(name, [int(n) for n in data[key]]) for name, key in ((CODE, "code"), (CUBINS, "cubins")))
    orders = [tuple(map(str, o)) for o in data["orders"]]
    symbols = list(data["symbols"])[: len(orders)]  # the CPU's come behind those of the GPU
    if cubins and len(cubins) != len(symbols):
        raise ValueError("number of cubins")
    kernels = {s: (Recorded.from_json(t.decode()), o) for s, t, o in zip(symbols, texts, orders, strict=True)}
    natives: dict[str, NativeKernel] = {}
    if known := data.get("natives"):
        images = read(NATIVES, [int(size) for _, _, size in known])
        natives = {
            str(symbol): NativeKernel(image, tuple(map(str, order)))
            for (symbol, order, _), image in zip(known, images, strict=True)
        }
    orders_of = {s: order for s, (_, order) in kernels.items()} | {s: k.order for s, k in natives.items()}
    for step in plan.steps:
        if step.kind == "kernel" and len(step.args) != len(orders_of[step.symbol]):
            raise ValueError(f"arguments of {step.symbol}")
    cpu = LLVM.machine_from(data["cpu"]) if natives else None
    return GpuCode(Platform(backend, target), kernels, dict(zip(symbols, cubins)), natives, cpu)
