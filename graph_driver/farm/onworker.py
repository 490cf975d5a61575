"""What runs on a worker: which work suits it, and the work itself.

Everything goes there and comes back as text, so that a worker of another version refuses it in words.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from polyc.emit import targets
from polyc.poly.errors import BuildError, PolycError
from polyc.poly.target import Target
from polyc.poly.words import first_line

PREFIX = "polyc"


def resource(target: Target | None) -> str:
    """The name of the Dask resource of workers that have this very polyc and, where `target` is one, that CPU."""
    from polyc.graph_driver.worker.jobs import fingerprint

    about = f"{fingerprint()} {target!r}" if target is not None else fingerprint()
    name = f"{PREFIX}-{target.cpu}" if target is not None else PREFIX
    return f"{name}-{hashlib.sha256(about.encode()).hexdigest()[:16]}"


def misfit(target: Target) -> str | None:
    """Why this machine is not the CPU that `target` asks for; None when it is. A target that is no CPU of somebody's
    (`x86-64-v3`, with features of its own) fits where its code runs."""
    from polyc.emit import cpus

    here = targets.host()
    if target.cpu in cpus.names() and not target.cpu.startswith(("x86-64", "generic")) and here.cpu != target.cpu:
        return f"its CPU is {here.cpu}, not {target.cpu}"
    return targets.obstacle(target)


def fits(name: str, data: dict[str, Any] | None) -> str | None:
    """Why this worker does not do work that needs the resource `name` for the target of `data`; None when it does.

    Raises:
        TypeError: the target is one of another version.
    """
    target = None if data is None else Target(**data)
    if target is not None and (reason := misfit(target)):
        return reason
    if resource(target) != name:
        return f"the polyc on {socket.gethostname()} is another one than here: both need the same version"
    return None


def facts(name: str, data: dict[str, Any] | None) -> str | None:
    """`fits`, in words whatever happens."""
    try:
        return fits(name, data)
    except (PolycError, TypeError) as error:
        return first_line(error)


def answered(work: Callable[[str], str], text: str) -> str:
    """A piece of work on a worker: a JSON object with its `done`, or with an `error`."""
    try:
        return json.dumps({"done": work(text)})
    except PolycError as error:
        return json.dumps({"error": first_line(error)})
    except OSError as error:
        return json.dumps({"error": f"{error.strerror or error} (on {socket.gethostname()})"})


def trial(text: str) -> str:
    """A trial of tuning: on cores of its own, in a process of its own. The time limit starts when it has them.

    Raises:
        BuildError: this worker has no room for locks.
    """
    from polyc.graph_driver.farm.cores import owned
    from polyc.graph_driver.tuning.trial import job_from, run_apart

    asked = json.loads(text)
    job = job_from(asked["job"])
    try:
        with owned(job.threads) as cores:
            return json.dumps(asdict(run_apart(job, float(asked["limit"]), cores)))
    except OSError as error:
        raise BuildError(f"{error.strerror or error} (on {socket.gethostname()})") from None


def module(text: str) -> str:
    """A module's work in a process of its own, on cores of its own: what it answers to `line`.

    Raises:
        BuildError: it died or took too long, or this worker has no room for locks.
    """
    from polyc.graph_driver.farm.cores import owned
    from polyc.graph_driver.worker.apart import run_module

    asked = json.loads(text)
    try:
        with owned(int(asked["cores"])) as cores:
            answer, code = run_module(asked["module"], asked["line"].encode(), float(asked["limit"]), cores)
    except OSError as error:
        raise BuildError(f"{error.strerror or error} (on {socket.gethostname()})") from None
    if code is None:
        raise BuildError(f"it took more than {asked['limit']:g} s")
    if code:
        raise BuildError(f"its process died (exit code {code})")
    return answer.decode()


def kernel(text: str) -> str:
    """A kernel compiled: a worker's answer, its machine code in base 64."""
    from polyc.graph_driver.worker.jobs import answer, decode

    head, image = answer(decode(text.encode()))
    return json.dumps({"head": head, "image": base64.b64encode(image).decode()})
