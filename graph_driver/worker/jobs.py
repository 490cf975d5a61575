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
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.graph.defects import INTERNAL
from polyc.graph_driver.worker.gpu import compile_group, is_gpu_backend
from polyc.poly.errors import PolycError
from polyc.poly.target import Target

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule

COMPILER_PACKAGES = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")


@dataclass(frozen=True)
class Job:
    """A Scop as JSON text to be compiled for `target` under the name `symbol`; `trace`: with this schedule
    (empty: the automatic one). `checks`: of accesses that are not proven."""

    text: str
    symbol: str
    target: Target
    threads: int
    backend: str = "llvm"
    trace: str = ""
    checks: bool = False


@dataclass(frozen=True)
class Compiled:
    """Machine code (of back end `c99` a `PortableKernel` as JSON, of a GPU a `Recorded` as JSON).

    `order` names the Scop's arrays in ABI order, then `scratch` (name, and bytes or their formula as
    `json_io.dump_expr` writes it): memory that the code needs while it runs. `seconds` by stage.
    """

    symbol: str
    order: tuple[str, ...]
    image: bytes
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    cache_hit: bool = False
    scratch: tuple[tuple[str, int | str], ...] = ()

    @property
    def abi(self) -> tuple[str, tuple[str, ...], tuple[tuple[str, int | str], ...]]:
        """What a plan must know to call it: symbol, order, scratch."""
        return self.symbol, self.order, self.scratch


@once
def fingerprint() -> str:
    """A hash of the compiler's own sources: another compiler, other cache entries."""
    root = Path(__file__).resolve().parent.parent.parent
    digest = sha256()
    for package in COMPILER_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".toml", ".h"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_key(job: Job) -> str:
    """The disk cache's key of a job."""
    from polyc.emit import cache

    parts = ("group", job.text, job.symbol, repr(job.target), str(job.threads), job.backend, fingerprint())
    budget = os.environ.get("POLYC_BUDGET", "")
    more = (job.trace, "checks" if job.checks else "", f"budget {budget}" if budget else "")
    return cache.make_key(*parts, *(p for p in more if p))


def find(job: Job) -> Compiled | None:
    """The job's result from the disk cache."""
    from polyc.emit import cache

    body = cache.get(cache_key(job), ".kernel")
    if body is None:
        return None
    head, _, image = body.partition(b"\n")
    try:
        data = json.loads(head)
        return from_head(data, image, {}, True)
    except (ValueError, KeyError, TypeError):
        return None  # not an entry of ours: it is rebuilt and overwritten


def compile_job(job: Job) -> Compiled:
    """Schedule, lower and compile; the result goes into the disk cache.

    Raises:
        PolycError: the Scop has no schedule or no code.
    """
    from polyc.emit.compile import compile_step
    from polyc.emit.passes.workspace import constant_bytes, formula_bytes
    from polyc.graph_driver.worker.compile_operator import or_program_order
    from polyc.graph_driver.worker.tuned import replayed
    from polyc.poly import json_io
    from polyc.poly.json_io import dump_expr
    from polyc.scheduler.strategies.auto import automatic

    start = time.perf_counter()
    scop = json_io.loads(job.text)
    read = time.perf_counter()
    seconds = {"read": read - start}
    if is_gpu_backend(job.backend):
        recorded, order, notes = compile_group(scop, job.backend, job.symbol, seconds, job.checks)
        scratch_bytes = tuple(recorded.sequence.scratch.items())
        image = recorded.to_json().encode()
        return _kept(job, Compiled(job.symbol, order, image, notes, seconds, False, scratch_bytes))
    schedule = replayed(scop, job.trace) if job.trace else None
    if schedule is None:
        schedule = automatic(scop, job.target, job.threads)
    seconds["schedule"] = time.perf_counter() - read

    def compiled(schedule: Schedule) -> Compiled:
        if job.backend == "c99":
            return _portable(job, schedule, seconds)
        function, scratch, native, report = compile_step(
            schedule.scop, schedule.tree, job.target, job.backend, job.symbol, schedule.notes, job.checks
        )
        order = tuple(b.name for b in function.buffers)
        sizes = tuple((b.name, constant_bytes(b) or dump_expr(formula_bytes(b))) for b in scratch)
        times = seconds | report.seconds
        return Compiled(function.name, order, native.image, tuple(report.notes), times, False, sizes)

    return _kept(job, or_program_order(schedule, compiled))


def _kept(job: Job, done: Compiled) -> Compiled:
    """The result, put into the disk cache."""
    from polyc.emit import cache

    cache.put(cache_key(job), json.dumps(_head(done)).encode() + b"\n" + done.image, ".kernel")
    return done


def _portable(job: Job, schedule: Schedule, seconds: dict[str, float]) -> Compiled:
    """C99 text instead of machine code."""
    from polyc.emit.c.c99 import portable_kernel

    start = time.perf_counter()
    kernel = portable_kernel(schedule.scop, schedule.tree, job.symbol, job.target, job.checks)
    order = tuple(a.name for a in kernel.arguments)
    sizes = tuple((a.name, a.nbytes) for a in kernel.arguments if a.scratch)
    image = kernel.to_json().encode()
    seconds = seconds | {"print": time.perf_counter() - start}
    return Compiled(job.symbol, order, image, (*schedule.notes, *kernel.notes), seconds, False, sizes)


def _head(done: Compiled) -> dict[str, Any]:
    """All but the image and the times."""
    return {"symbol": done.symbol, "order": done.order, "notes": done.notes, "scratch": done.scratch}


def from_head(head: Mapping[str, Any], image: bytes, seconds: Mapping[str, float], cache_hit: bool) -> Compiled:
    """The result back from its parts."""
    scratch = tuple((str(name), size if isinstance(size, str) else int(size)) for name, size in head["scratch"])
    order, notes = tuple(head["order"]), tuple(head["notes"])
    return Compiled(str(head["symbol"]), order, image, notes, seconds, cache_hit, scratch)


def encode(job: Job) -> bytes:
    """A job as one line."""
    return json.dumps(asdict(job)).encode() + b"\n"


def decode(line: bytes) -> Job:
    """The job back."""
    data = json.loads(line)
    return Job(data["text"], data["symbol"], Target(**data["target"]), data["threads"], data["backend"], data["trace"],
               data["checks"])  # fmt: skip


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
        return {"error": f"{INTERNAL} at {where}: {type(error).__name__}: {error}", "size": 0}, b""
    return _head(done) | {"seconds": dict(done.seconds), "size": len(done.image)}, done.image


def main() -> None:
    """Serve jobs from stdin until it closes."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the replies
    for line in sys.stdin.buffer:
        head, body = answer(decode(line))
        out.write(json.dumps(head).encode() + b"\n" + body)
        out.flush()
