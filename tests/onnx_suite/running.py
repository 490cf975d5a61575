"""Running cases one by one in a child process that may die or hang without harm."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

LIMIT = 60.0  # seconds for one case
STATES = ("pass", "fail", "refused", "crash", "timeout")


@dataclass(frozen=True)
class Outcome:
    """How one case went.

    `state` is one of `STATES`; `host` lists (operator, reason) of what ran on the host.
    `specialised`: values of inputs were compiled in; `baked`: they left nothing to compute at run time.
    """

    name: str
    state: str
    reason: str = ""
    host: tuple[tuple[str, str], ...] = ()
    specialised: bool = False
    baked: bool = False
    seconds: float = 0.0

    @property
    def compiled(self) -> bool:
        """Whether the case passed, computed at run time by polyc's kernels alone."""
        return self.state == "pass" and not self.host and not self.baked


def run_case(case: Any) -> Outcome:
    """Compile and run one case in this process and compare with the suite's outputs."""
    from onnx.backend.test.runner import Runner

    from polyc.graph_driver import onnx_backend
    from polyc.poly.errors import PolycError

    start = time.thread_time()
    rep = None

    def outcome(state: str, reason: str = "") -> Outcome:
        models = rep.models if rep is not None else []
        host = tuple((o, why) for m in models for o, _, why in m.report().host)
        specialised = rep is not None and bool(rep.specialised)
        baked = specialised and any(map(_constant, models))
        return Outcome(case.name, state, reason, host, specialised, baked, time.thread_time() - start)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            rep = onnx_backend.PolycBackend.prepare(case.model, threads=1)
            for inputs, wanted in case.data_sets:
                got = rep.run([_plain(x) for x in inputs])
                Runner.assert_similar_outputs([_plain(x) for x in wanted], got, case.rtol, case.atol)
        except PolycError as error:
            return outcome("refused", _line(error))
        except Exception as error:  # a defect of any layer is this case's failure
            return outcome("fail", f"{type(error).__name__}: {_line(error)}")
    return outcome("pass")


def _constant(model: Any) -> bool:
    return all(model.graph.constant(o) is not None for o in model.graph.outputs)


def _plain(value: Any) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def run_all(
    cases: Sequence[Any], jobs: int = 1, limit: float = LIMIT, tell: Callable[[Outcome], None] | None = None
) -> list[Outcome]:
    """All cases in `jobs` child processes; a case that kills or stops its process costs only itself."""
    context = multiprocessing.get_context("fork")
    found: dict[int, Outcome] = {}
    todo = list(range(len(cases)))[::-1]
    children = [_Child(context, cases) for _ in range(jobs)]
    try:
        while todo or any(c.busy is not None for c in children):
            for child in children:
                if child.busy is None and todo:
                    child.start(todo.pop())
            multiprocessing.connection.wait([c.pipe for c in children if c.busy is not None], timeout=0.5)
            for child in children:
                if child.busy is not None and (done := child.finished(limit)) is not None:
                    found[done[0]] = done[1]
                    if tell:
                        tell(done[1])
    finally:
        for child in children:
            child.stop()
    return [found[k] for k in range(len(cases))]


class _Child:
    """One process and the case it is at (`busy`)."""

    def __init__(self, context: Any, cases: Sequence[Any]) -> None:
        self.context, self.cases = context, cases
        self.busy: int | None = None
        self.since = 0.0
        self._open()

    def _open(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(self.cases, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def start(self, case: int) -> None:
        self.busy, self.since = case, time.monotonic()
        self.pipe.send(case)

    def finished(self, limit: float) -> tuple[int, Outcome] | None:
        """The case that is over now, or None; a dead or late process is replaced."""
        assert self.busy is not None
        case = self.busy
        try:
            if self.pipe.poll():
                self.busy = None
                return case, self.pipe.recv()
        except (EOFError, OSError):
            pass  # it died: reported below
        if self.process.is_alive() and time.monotonic() - self.since < limit:
            return None
        late = self.process.is_alive()
        self.stop()
        self.busy = None
        self._open()
        reason = f"more than {limit:.0f} s" if late else f"the process died ({self.process.exitcode})"
        return case, Outcome(self.cases[case].name, "timeout" if late else "crash", reason)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _serve(cases: Sequence[Any], pipe: Connection) -> None:
    from polyc.graph_driver.worker import kernels

    np.seterr(all="ignore")
    kernels.IN_PROCESS = 1 << 30  # a compiler process for each case would cost more than its kernels
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        pipe.send(run_case(cases[case]))
