"""Runs recorded launches under `oclgrind`, in a process without isl: the tool brings an isl of its own that would
be taken for islpy's. Arguments: a folder with `launches.json` (`polyc.emit.gpu.program.Recorded`) and `NAME.npy`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyopencl as cl


def main(folder: Path) -> None:
    """Launch everything and write the arrays back."""
    job = json.loads((folder / "launches.json").read_text())
    (device,) = (d for p in cl.get_platforms() if "oclgrind" in p.name.lower() for d in p.get_devices())
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    arrays = {p.stem: np.load(p) for p in folder.glob("*.npy")}
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    memory = {n: cl.Buffer(context, flags, hostbuf=a) for n, a in arrays.items()}
    memory |= {n: cl.Buffer(context, cl.mem_flags.READ_WRITE, size) for n, size in job["scratch"].items()}
    # Inlined functions that return structs make LLVM intrinsics that the tool does not know.
    program = cl.Program(context, job["text"]).build("-cl-std=CL1.2 -Dinline=__attribute__((noinline))")
    for number, grid, arguments in job["calls"]:
        info = job["kernels"][number]
        values = [x for a in arguments for x in ((memory[a], np.int64(0)) if isinstance(a, str) else (np.int64(a),))]
        size = tuple(g * t for g, t in zip(grid, info["threads"]))
        cl.Kernel(program, info["name"])(queue, size, tuple(info["threads"]), *values)
    for name, array in arrays.items():
        cl.enqueue_copy(queue, array, memory[name])
        np.save(folder / f"{name}.npy", array)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
