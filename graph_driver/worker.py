"""Compiling one Scop given as text; and a process that does so for its parent.

isl contexts and LLVM are kept to one process each, so a crash or a hang in them costs one
kernel, not the program. A worker speaks over its pipes: a JSON line in; out, a JSON line
followed by `size` bytes of machine code. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache as once
from hashlib import sha256
from pathlib import Path
from typing import Any

from poly.errors import BuildError, PolycError
from poly.target import Target

COMPILER_PACKAGES = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")


@dataclass(frozen=True)
class Job:
    """A Scop as JSON text to be compiled for `target` under the name `symbol`."""

    text: str
    symbol: str
    target: Target
    threads: int
    backend: str = "llvm"


@dataclass(frozen=True)
class Compiled:
    """Machine code. `order` names the Scop's arrays in ABI order; `seconds` by stage."""

    symbol: str
    order: tuple[str, ...]
    image: bytes
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    cache_hit: bool = False


@once
def fingerprint() -> str:
    """A hash of the compiler's own sources: another compiler, other cache entries."""
    root = Path(__file__).resolve().parent.parent
    digest = sha256()
    for package in COMPILER_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_key(job: Job) -> str:
    """The disk cache's key of a job."""
    from emit import cache

    return cache.make_key("group", job.text, job.symbol, repr(job.target), str(job.threads), job.backend, fingerprint())


def find(job: Job) -> Compiled | None:
    """The job's result from the disk cache."""
    from emit import cache

    body = cache.get(cache_key(job), ".kernel")
    if body is None:
        return None
    head, _, image = body.partition(b"\n")
    try:
        data = json.loads(head)
        return Compiled(data["symbol"], tuple(data["order"]), image, tuple(data["notes"]), {}, True)
    except (ValueError, KeyError, TypeError):
        return None  # not an entry of ours: it is rebuilt and overwritten


def compile_job(job: Job) -> Compiled:
    """Schedule, lower and compile; the result goes into the disk cache.

    Raises:
        PolycError: the Scop has no schedule or no code.
    """
    from emit import cache
    from emit.compile import compile_kernel
    from poly import json_io
    from scheduler.strategies.auto import automatic

    start = time.perf_counter()
    scop = json_io.loads(job.text)
    read = time.perf_counter()
    schedule = automatic(scop, job.target, job.threads)
    seconds = {"read": read - start, "schedule": time.perf_counter() - read}
    kernel = compile_kernel(
        schedule.scop, schedule.tree, target=job.target, backend=job.backend, threads=job.threads,
        name=job.symbol, notes=schedule.notes,
    )  # fmt: skip
    if kernel.native is None:
        raise BuildError(f"the back end '{job.backend}' makes no machine code")
    report = kernel.report()
    seconds |= report["seconds"]
    order = tuple(b.name for b in kernel.function.buffers)
    done = Compiled(kernel.name, order, kernel.native.image, tuple(report["notes"]), seconds)
    head = json.dumps({"symbol": done.symbol, "order": list(order), "notes": list(done.notes)})
    cache.put(cache_key(job), head.encode() + b"\n" + done.image, ".kernel")
    return done


def encode(job: Job) -> bytes:
    """A job as one line."""
    return json.dumps(asdict(job)).encode() + b"\n"


def decode(line: bytes) -> Job:
    """The job back."""
    data = json.loads(line)
    return Job(data["text"], data["symbol"], Target(**data["target"]), data["threads"], data["backend"])


def answer(job: Job) -> tuple[dict[str, Any], bytes]:
    """Head and body of a worker's reply."""
    try:
        done = compile_job(job)
    except PolycError as error:
        return {"error": str(error), "size": 0}, b""
    except RecursionError:
        return {"error": "the loops are nested too deeply", "size": 0}, b""
    except Exception as error:  # a bug of the compiler: reported with its place, never lost
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else "?"
        return {"error": f"internal error at {where}: {type(error).__name__}: {error}", "size": 0}, b""
    head = {
        "symbol": done.symbol, "order": list(done.order), "notes": list(done.notes),
        "seconds": dict(done.seconds), "size": len(done.image),
    }  # fmt: skip
    return head, done.image


def main() -> None:
    """Serve jobs from stdin until it closes."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the replies
    for line in sys.stdin.buffer:
        head, body = answer(decode(line))
        out.write(json.dumps(head).encode() + b"\n" + body)
        out.flush()


if __name__ == "__main__":
    main()
