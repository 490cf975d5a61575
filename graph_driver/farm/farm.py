"""Work on a Dask cluster that gets done although workers die, hang or are slow: each piece is answered once.

Dask starts pieces again whose worker died. What it does not see is seen here: workers that have become silent, pieces
that no worker has, a scheduler that is gone. A piece may so be worked on twice; the first answer counts. Pieces say the
same whoever does them, so that it does not matter which.
"""

from __future__ import annotations

import itertools
import json
import queue
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.farm import onworker
from polyc.graph_driver.farm.cluster import ANSWER, SILENT
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.poly.words import counted, first_line

if TYPE_CHECKING:
    from distributed import Client, Future

LOOK = 1.0
"""Seconds between two looks at the cluster."""
LEAST = 0.2
"""Seconds that it has for one at least."""
PATIENCE = 30.0
"""Seconds that a piece may take longer than its time limit, for waiting and for the network, until it is given to
another worker, too."""
WORKERLESS = 60.0
"""Seconds that a cluster may be without any worker that suits: time for those that died to start again."""
MOST_COPIES = 8
"""A piece that this many workers died of or never answered is given up, and the work with it."""


@dataclass
class Work:
    """A piece of work: `function(text)` on a worker that has the resource `needs`, within about `limit` seconds.

    `label` is for people. `avoid`: addresses of workers that are not to do it, where there are others.
    """

    function: Callable[[str], str]
    text: str
    needs: str
    limit: float
    label: str
    avoid: frozenset[str] = frozenset()
    copies: dict[str, Copy] = field(default_factory=dict)
    started: int = 0


@dataclass
class Copy:
    """A piece of work as Dask has it: its key, when it was given, when it last was seen with a worker."""

    future: Future
    given: float
    seen: float


@dataclass(frozen=True)
class Answer:
    """What a piece of work gave, in text, or why it gave nothing; the address of who did it."""

    work: Work
    text: str
    error: str
    worker: str


class Farm:
    """A Dask cluster as polyc uses it. Used by one thread at a time."""

    def __init__(self, client: Client, where: str) -> None:
        self._client, self._where = client, where
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._by_key: dict[str, Work] = {}
        self._numbers = itertools.count()
        self._name = f"polyc-{uuid.uuid4().hex[:12]}"
        self._looked = 0.0
        self._answered = time.monotonic()
        self._unanswered: float | None = None  # since when it owes answers
        self._workers: dict[str, dict[str, Any]] = {}
        self._alive: dict[str, tuple[float, float]] = {}  # the last sign of life, on its clock and on ours
        self._had: dict[str, float] = {}  # when there was a worker for a resource
        self.notes: list[str] = []

    @property
    def open(self) -> int:
        """Pieces that were given and not taken yet."""
        return len({id(work) for work in self._by_key.values()})

    # ---- who does it ----

    def need(self, target: Target | None) -> str:
        """The resource of workers with this polyc and the CPU `target` (None: any): for `Work.needs`.

        Raises:
            BuildError: there is no such worker; says why not, for each kind of those that there are.
        """
        name, data = onworker.resource(target), None if target is None else asdict(target)
        wanted = "this polyc" if target is None else f"this polyc and a {target.cpu} CPU"
        self._wait_for_any()
        reasons = self._reasons(name, data)
        unfit = sorted({reason for reason in reasons.values() if reason is not None})
        if all(reason is not None for reason in reasons.values()):
            raise BuildError(f"no worker at {self._where} has {wanted}: {'; '.join(unfit[:3])}")
        self._register(name, data)
        if unfit:
            left = sum(reason is not None for reason in reasons.values())
            self.notes.append(f"{counted(left, 'worker')} at {self._where} not used: {'; '.join(unfit[:3])}")
        self._had[name] = time.monotonic()
        self._look(now=True)
        return name

    def slots(self, needs: str) -> int:
        """How many pieces that need a resource can be worked on at once, as far as is known now."""
        now = time.monotonic()
        return sum(int(w["resources"].get(needs, 0)) for a, w in self._workers.items() if self._sounds(a, now))

    def _wait_for_any(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=ANSWER)
        except Exception:  # a time-out, of several types
            raise BuildError(
                f"the Dask scheduler at {self._where} has no workers (dask worker ADDRESS starts one)"
            ) from None

    def _reasons(self, name: str, data: dict[str, Any] | None) -> dict[str, str | None]:
        """Of each worker why it does not suit."""
        try:
            said = self._sync(self._client._run, onworker.facts, name, data, on_error="return")
        except Exception as error:
            raise self._lost(first_line(error)) from None
        return {
            a: f"it cannot run this polyc ({first_line(r)})" if isinstance(r, BaseException) else r
            for a, r in said.items()
        }

    def _register(self, name: str, data: dict[str, Any] | None) -> None:
        from polyc.graph_driver.farm.plugin import Suited

        try:
            self._client.register_plugin(Suited(name, data), name=name)
        except Exception as error:
            raise self._lost(first_line(error)) from None

    # ---- work ----

    def give(self, work: Work) -> None:
        """Have a piece of work done. Raises `BuildError`: the scheduler is gone."""
        self._copy(work, sorted(self._suited(work) - work.avoid) if work.avoid else [])

    def take(self, seconds: float) -> Answer | None:
        """The next answer; None: there was none for so many seconds.

        Raises:
            BuildError: the scheduler is gone, no worker that suits is left, or all that had a piece of work died of it.
        """
        end = time.monotonic() + seconds
        while True:
            self._look()
            try:
                key = self._done.get(timeout=max(0.0, min(LOOK, end - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= end:
                    return None
                continue
            if answer := self._answer(key):
                return answer

    def drop(self) -> None:
        """Forget all work that was given."""
        futures = [copy.future for work in self._by_key.values() for copy in work.copies.values()]
        self._by_key.clear()
        if futures:
            self._cancel(futures)

    def _copy(self, work: Work, workers: list[str]) -> None:
        if work.started >= MOST_COPIES:
            raise BuildError(
                f"{work.label}: {work.started} attempts on workers at {self._where} died or never answered; what was"
                " finished is kept"
            )
        key = f"{self._name}-{next(self._numbers)}"
        try:
            future = self._client.submit(
                onworker.answered, work.function, work.text, key=key, pure=False, resources={work.needs: 1},
                workers=workers or None,
            )  # fmt: skip
        except Exception as error:
            raise self._lost(first_line(error)) from None
        now = time.monotonic()
        work.started += 1
        work.copies[key] = Copy(future, now, now)
        self._by_key[key] = work
        future.add_done_callback(lambda _, key=key: self._done.put(key))

    def _answer(self, key: str) -> Answer | None:
        work = self._by_key.get(key)
        if work is None:
            return None  # another copy was faster
        copy = work.copies[key]
        status = copy.future.status
        if status == "finished":
            try:
                worker = self._who_has(key)
                said = json.loads(copy.future.result(timeout=self._left()))
            except Exception:  # its worker has died since, or the scheduler has: it is done again
                return self._again(work, key)
            self._finish(work)
            return Answer(work, said.get("done", ""), said.get("error", ""), worker)
        if status == "error":
            error = copy.future.exception()
            if type(error).__name__ != "KilledWorker":
                self._finish(work)
                cause = error.__cause__ or error  # Dask says that something cannot be read, the cause what and why
                return Answer(work, "", f"the cluster could not do it: {type(cause).__name__}: {first_line(cause)}", "")
        return self._again(work, key)

    def _again(self, work: Work, key: str) -> Answer | None:
        """Without a copy that failed: another one, where it was the last."""
        del self._by_key[key], work.copies[key]
        if not work.copies:
            self._check()
            self._copy(work, [])
        return None

    def _finish(self, work: Work) -> None:
        for key in work.copies:
            del self._by_key[key]
        self._cancel([copy.future for copy in work.copies.values() if not copy.future.done()])
        work.copies.clear()

    def _cancel(self, futures: list[Any]) -> None:
        if futures and self._client.status == "running":
            try:
                self._client.cancel(futures, force=True)
            except Exception:
                return  # the scheduler is gone, and they with it

    # ---- how the cluster is ----

    def _look(self, now: bool = False) -> None:
        """See how the cluster is, now and then; give silent workers' pieces to others."""
        at = time.monotonic()
        if not now and at - self._looked < LOOK:
            return
        self._check()
        try:
            found = self._sync(self._client.scheduler.identity, n_workers=-1)
        except Exception as error:
            raise self._lost(first_line(error)) from None
        self._looked = at = time.monotonic()
        self._workers = dict(found["workers"])
        for address, about in self._workers.items():
            if self._alive.get(address, (None,))[0] != about["last_seen"]:
                self._alive[address] = about["last_seen"], at
        for needs in {work.needs for work in self._by_key.values()} | ({*self._had} if now else set()):
            if any(needs in w["resources"] and self._sounds(a, at) for a, w in self._workers.items()):
                self._had[needs] = at
            elif at - self._had.get(needs, at) > WORKERLESS:
                raise BuildError(
                    f"no worker that suits is left at {self._where} for {WORKERLESS:.0f} s; what was finished is kept"
                )
        if self._by_key:
            self._give_to_others(at)

    def _give_to_others(self, now: float) -> None:
        """Copies of what a silent worker has, nobody has, or takes too long."""
        with_worker = self._processing()
        for work in list({id(w): w for w in self._by_key.values()}.values()):
            there = {key: with_worker[key] for key in work.copies if key in with_worker}
            for key in there:
                work.copies[key].seen = now
            others = self._suited(work) - set(there.values())
            last = max(copy.given for copy in work.copies.values())
            held = any(self._sounds(address, now) for address in there.values())
            if now - last > work.limit + PATIENCE or (there and not held and now - last > LOOK):
                if others:
                    self._copy(work, sorted(others))
            elif not there and now - max(c.seen for c in work.copies.values()) > 2 * LOOK and self._suited(work):
                # A worker that suits came after the piece, which Dask then does not notice.
                if not any(copy.future.done() for copy in work.copies.values()):
                    self._copy(work, [])

    def _suited(self, work: Work) -> set[str]:
        """Addresses of workers that suit and are alive."""
        now = time.monotonic()
        return {a for a, w in self._workers.items() if work.needs in w["resources"] and self._sounds(a, now)}

    def _sounds(self, address: str, now: float) -> bool:
        """Whether a worker has given a sign of life lately."""
        return address in self._alive and now - self._alive[address][1] < SILENT

    def _processing(self) -> dict[str, str]:
        """Which worker has a piece, by its key."""
        try:
            found = self._sync(self._client.scheduler.processing, workers=None)
        except Exception as error:
            raise self._lost(first_line(error)) from None
        return {str(key): str(address) for address, keys in found.items() for key in keys}

    def _who_has(self, key: str) -> str:
        found = self._sync(self._client.scheduler.who_has, keys=[key])
        return str(next(iter(found.get(key, ())), ""))

    def _check(self) -> None:
        if self._client.status == "running":
            self._answered = time.monotonic()
        elif self._client.status in ("closed", "closing") or time.monotonic() - self._answered > ANSWER:
            raise self._lost("the connection is closed")

    def _sync(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What the scheduler answers. Questions that stay without an answer have `ANSWER` seconds together."""
        start = time.monotonic()
        try:
            found = self._client.sync(function, *arguments, callback_timeout=self._left(), **named)
        except BaseException:
            self._unanswered = start if self._unanswered is None else self._unanswered
            raise
        self._unanswered = None
        return found

    def _left(self) -> float:
        """Seconds that the scheduler has for an answer."""
        waited = 0.0 if self._unanswered is None else time.monotonic() - self._unanswered
        return max(LEAST, ANSWER - waited)

    def _lost(self, why: str) -> BuildError:
        return BuildError(
            f"the Dask scheduler at {self._where} does not answer any more ({why}); what was finished is kept, and the"
            " same command goes on from there"
        )


def _told(reason: object) -> str | None:
    """What a worker says of why it does not suit: it may have failed to say it."""
    if isinstance(reason, BaseException):
        return f"it cannot run this polyc ({type(reason).__name__}: {first_line(reason)})"
    return None if reason is None else str(reason)
