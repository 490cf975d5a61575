"""Compiling one Scop given as text; and a process that does so for its parent.

isl contexts and LLVM are kept to one process each, so a crash or a hang in them costs one
kernel, not the program. A worker speaks over its socket: a JSON line in; out, a JSON line
followed by `size` bytes of machine code. Nothing is pickled.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache as once
from hashlib import sha256
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.backends.compiled import Compiled
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.backends.registry import named
from polyc.graph_driver.graph.defects import INTERNAL
from polyc.poly.errors import PolycError
from polyc.poly.records import dataclass
from polyc.poly.spans import Span, recording, span

if TYPE_CHECKING:
    from polyc.scheduler.schedule import Schedule

COMPILER_PACKAGES = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver")


@dataclass(frozen=True)
class Job:
    """A Scop as JSON text to be compiled for `platform` under the name `symbol`; `trace`: with this schedule
    (empty: the automatic one). `checks`: of accesses that are not proven. `overlapping`: its arrays may overlap, as far
    as the result's `gaps` say."""

    text: str
    symbol: str
    platform: Platform
    trace: str = ""
    checks: bool = False
    overlapping: bool = False


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

    parts = ("group", job.text, job.symbol, *job.platform.key, fingerprint())
    budget = os.environ.get("POLYC_BUDGET", "")
    more = (
        job.trace, "checks" if job.checks else "", f"budget {budget}" if budget else "",
        "overlapping" if job.overlapping else "",
    )  # fmt: skip
    return cache.make_key(*parts, *(p for p in more if p))


def find(job: Job) -> Compiled | None:
    """The job's result from the disk cache."""
    from polyc.emit import cache

    body = cache.get(cache_key(job), ".kernel")
    return None if body is None else _compiled(body)


def _compiled(body: bytes) -> Compiled | None:
    head, _, image = body.partition(b"\n")
    try:
        data = json.loads(head)
        return from_head(data, image, {}, True)
    except (ValueError, KeyError, TypeError):
        return None  # not an entry of ours: it is rebuilt and overwritten


def compile_job(job: Job) -> Compiled:
    """Schedule, lower and compile; the result goes into the disk cache. Where another machine that shares the cache is
    compiling the same, its result.

    Raises:
        PolycError: the Scop has no schedule or no code.
    """
    from polyc.emit import cache

    with cache.building(cache_key(job), ".kernel") as other:
        return (other and _compiled(other)) or _compiled_here(job)


def _compiled_here(job: Job) -> Compiled:
    from polyc.graph_driver.worker.compile_operator import or_program_order
    from polyc.graph_driver.worker.tuned import replayed
    from polyc.poly import json_io

    platform = job.platform
    backend, machine, threads = platform.backend, platform.machine, platform.threads
    start = time.perf_counter()
    with span("read"):
        scop = json_io.loads(job.text)
    read = time.perf_counter()
    with span("schedule"):
        schedule = replayed(scop, job.trace) if job.trace else None
        if schedule is None:
            schedule = (
                backend.schedule_overlapping(scop, machine)
                if job.overlapping
                else backend.schedule(scop, machine, threads)
            )
    seconds = {"read": read - start, "schedule": time.perf_counter() - read}

    def compiled(schedule: Schedule) -> Compiled:
        compile_one = backend.compile_overlapping if job.overlapping else backend.compile
        made = compile_one(schedule, machine, threads, job.symbol, job.checks)
        return replace(made, seconds=seconds | dict(made.seconds))

    return kept(job, or_program_order(schedule, compiled) if backend.has_program_order else compiled(schedule))


def kept(job: Job, done: Compiled) -> Compiled:
    """The result, put into the disk cache."""
    from polyc.emit import cache

    cache.put(cache_key(job), json.dumps(_head(done)).encode() + b"\n" + done.image, ".kernel")
    return done


def _head(done: Compiled) -> dict[str, Any]:
    """All but the image and the times."""
    head: dict[str, Any] = {"symbol": done.symbol, "order": done.order, "notes": done.notes, "scratch": done.scratch}
    return head | ({"gaps": done.gaps} if done.gaps else {})


def from_head(head: Mapping[str, Any], image: bytes, seconds: Mapping[str, float], cache_hit: bool) -> Compiled:
    """The result back from its parts."""
    scratch = tuple((str(name), size if isinstance(size, str) else int(size)) for name, size in head["scratch"])
    order, notes = tuple(head["order"]), tuple(head["notes"])
    spans = tuple(Span(**data) for data in head.get("spans", ()))
    gaps = gaps_from(head.get("gaps", ()))
    return Compiled(str(head["symbol"]), order, image, notes, seconds, cache_hit, scratch, spans, gaps)


def gaps_from(data: Any) -> tuple[tuple[str, str, int, int], ...]:
    """`Compiled.gaps` back from JSON."""
    return tuple((str(a), str(b), int(low), int(high)) for a, b, low, high in data)


def encode(job: Job) -> bytes:
    """A job as one line."""
    platform = job.platform
    data = {
        "text": job.text, "symbol": job.symbol, "trace": job.trace, "checks": job.checks,
        "overlapping": job.overlapping,
        "backend": platform.backend.name, "machine": platform.backend.data_of(platform.machine),
        "threads": platform.threads,
    }  # fmt: skip
    return json.dumps(data).encode() + b"\n"


def decode(line: bytes) -> Job:
    """The job back. Raises `BuildError`: its back end is not installed here."""
    data = json.loads(line)
    backend = named(data["backend"])
    platform = Platform(backend, backend.machine_from(data["machine"]), data["threads"])
    return Job(data["text"], data["symbol"], platform, data["trace"], data["checks"], data["overlapping"])


def answer(job: Job) -> tuple[dict[str, Any], bytes]:
    """Head and body of a worker's reply."""
    try:
        with recording() as spans, span("kernel", symbol=job.symbol, size=len(job.text)):
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
    head = _head(done) | {"seconds": dict(done.seconds), "spans": [s.data() for s in spans]}
    return head | {"size": len(done.image)}, done.image


def _answered(line: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        job = decode(line)
    except PolycError as error:
        return {"error": str(error), "size": 0}, b""
    return answer(job)


def serve(jobs: socket) -> None:
    """Answer the jobs that come over a socket, until it closes."""
    with jobs.makefile("rb") as lines, jobs.makefile("wb") as out:
        for line in lines:
            head, body = _answered(line)
            out.write(json.dumps(head).encode() + b"\n" + body)
            out.flush()
