"""The part of a compiled directory that is of a GPU: kernels, launches and machine code.

    code.bin        kernels and launches as text, a kernel of the plan after another (`Recorded.to_json`)
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
from polyc.graph_driver.backends.gpu.code import GpuCode
from polyc.graph_driver.backends.protocol import CODE, Backend, Platform, Read, Saved

if TYPE_CHECKING:
    from polyc.graph_driver.planning.plan import Plan

CUBINS = "cubins.bin"


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
        "symbols": list(code.kernels),
        "orders": [list(order) for _, order in code.kernels.values()],
        "code": [len(b) for b in texts],
        "cubins": [len(b) for b in cubins],
    }
    return Saved(entries, {CODE: texts, CUBINS: cubins})


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
    symbols, orders = list(data["symbols"]), [tuple(map(str, o)) for o in data["orders"]]
    if cubins and len(cubins) != len(symbols):
        raise ValueError("number of cubins")
    kernels = {s: (Recorded.from_json(t.decode()), o) for s, t, o in zip(symbols, texts, orders, strict=True)}
    for step in plan.steps:
        if step.kind == "kernel" and len(step.args) != len(kernels[step.symbol][1]):
            raise ValueError(f"arguments of {step.symbol}")
    return GpuCode(Platform(backend, target), kernels, dict(zip(symbols, cubins)))
