"""The tier `progressive`: a first program answers at once, the full one takes its place between two calls."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from polyc.graph_driver.execution.run_memory import aligned_bytes
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.running.all_sizes import AllSizes
from polyc.graph_driver.running.fixed import FixedSizes
from polyc.graph_driver.running.model import Built, Inputs, Model, Running
from polyc.graph_driver.tiers.background import Answer, Background
from polyc.poly.errors import BuildError
from polyc.poly.hooks import resolve
from polyc.poly.words import counted

if TYPE_CHECKING:
    from polyc.graph_driver.backends.protocol import Code
    from polyc.graph_driver.execution.executor import Executor
    from polyc.graph_driver.execution.parts import Parts


class Means(Protocol):
    """How the full program is come by."""

    def accept(self, model: Model) -> Model:
        """What another process has compiled, ready for calls. Raises `PolycError`: it is not of this source."""

    def of_numbers(self, why: str) -> Model:
        """The model, where sizes must be the numbers of each call because of `why`."""

    def here(self) -> Model:
        """The full model compiled in this process, where nobody else does: after a fork. Raises `PolycError`."""


class Progressive(Running):
    """Runs the model `now`, which is another one from one moment on.

    `now` is read once by a call, and either model is complete: a call ends with the program with which it began. What
    goes wrong with the full program is said in the report, and the first one stays.
    """

    def __init__(self, first: Model, background: Background, means: Means) -> None:
        self.now, self._first, self._means = first, first, means
        self.background = background
        self.failure = ""
        self._report, self._start, self._owner = first.report(), time.perf_counter(), os.getpid()
        self._settled, self._settling = threading.Event(), threading.Lock()
        self._share(first)
        self._stop = weakref.finalize(self, background.stop)
        mine = weakref.ref(self)  # the thread keeps nothing alive: who drops the model stops its process

        def arrived(answer: Answer) -> None:
            running = mine()
            if running is not None:
                running._arrived(answer)

        background.watch(arrived)

    def _share(self, model: Model) -> None:
        running = model.running
        self.formulas, self.specialiser, self.unsaved = running.formulas, running.specialiser, running.unsaved

    def _arrived(self, answer: Answer) -> None:
        """The other process has ended. Called in a thread."""
        with self._settling:
            if self._settled.is_set():
                return
            try:
                if answer.error:
                    raise BuildError(answer.error)
                if answer.numbers:
                    self._take(self._means.of_numbers(answer.numbers))
                else:
                    self._take(self._means.accept(in_memory(resolve("load_model")(answer.folder))))
            except Exception as error:  # whatever it is, there is a program that works
                self._give_up(one_line(error))

    def _take(self, full: Model) -> None:
        """Run `full` from the next call on. Raises `PolycError`: it does not run here."""
        running = full.running
        if running.formulas is None and not running.unsaved:
            full.executor()  # loaded before anybody waits for it
        report, kept = full.report(), self._report
        what = f"{counted(report.kernels, 'kernel')} of the full program" if not running.unsaved else "full programs"
        report.tiers = [f"{what} since {time.perf_counter() - self._start:.2f} s after the first could run"]
        self._share(full)
        self.now = full
        self.only = running.only
        vars(kept).update(vars(report) | {"specialised": kept.specialised})
        self._settled.set()

    def _give_up(self, why: str) -> None:
        self.failure = why
        self._report.tiers.append(f"the full program could not be made, the first one stays: {why}")
        self._settled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, `timeout` seconds at most; whether the full program runs.

        In a forked process nobody compiles: this one does so now, whatever the timeout.
        """
        if os.getpid() != self._owner:
            self._compile_here()
        self._settled.wait(timeout)
        return self.now is not self._first

    def _compile_here(self) -> None:
        """The full program made in this process, a fork of the one that began it."""
        self._owner, self._settled, self._settling = os.getpid(), threading.Event(), threading.Lock()
        if self.now is not self._first or self.failure:
            self._settled.set()
            return
        try:
            self._take(self._means.here())
        except Exception as error:  # as in `_arrived`
            self._give_up(one_line(error))

    def close(self) -> None:
        """Stop the process; the model runs as it does now."""
        with self._settling:
            if self._settled.is_set():
                return
            self._stop()
            self._give_up("the model was closed before")

    def settle(self) -> None:
        """Wait for the full program. Raises `BuildError`: there will be none."""
        if not self.wait():
            raise BuildError(f"there is only the first program, which is not saved: {self.failure}")

    # ---- what a model asks of what runs it: that which runs now answers ----

    @property
    def built(self) -> Built:
        """Of the model that runs now."""
        return self.now.running.built

    @property
    def code(self) -> Code:
        """Of the model that runs now."""
        return self.now.code

    def executor(self) -> Executor:
        """Of the model that runs now. Raises `BuildError`."""
        return self.now.executor()

    def for_inputs(self, inputs: Mapping[str, Any]) -> Executor:
        """Of the model that runs now. Raises `ArgumentError`."""
        return self.now.for_inputs(inputs)

    def special_for(self, inputs: Mapping[str, Any]) -> Model:
        """The model that runs now, or one for the shapes of these inputs: it stays what it is."""
        return self.now.model_for(inputs)

    def parts(self, alone: frozenset[int]) -> Parts:
        """Of the model that runs now."""
        return self.now.running.parts(alone)

    def specialise(self, sizes: Mapping[str, int]) -> Model:
        """As `Model.specialise`. Raises `ArgumentError`, `BuildError`."""
        return self.now.specialise(sizes)

    @property
    def inputs(self) -> Inputs:
        """dtype and shape by input name."""
        return self.now.inputs

    def inputs_for(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> Inputs:
        """As `Model.inputs_for`. Raises `ArgumentError`."""
        return self.now.inputs_for(given, sizes)

    def chosen_sizes(self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, int]:
        """As `Model.chosen_sizes`."""
        return self.now.chosen_sizes(given, sizes)

    def shape_of(self, name: str) -> tuple[int | str | None, ...] | None:
        """As `Model.shape_of`."""
        return self.now.shape_of(name)

    def shapes_text(self) -> str:
        """The inputs with their shapes in one line."""
        return self.now.shapes_text()


def in_memory(model: Model) -> Model:
    """A loaded model whose weights are in memory of this process, as those of a compiled one: its file goes away, and
    memory that is no file has larger pages."""
    running, report = model.running, model.report()
    weights = aligned_bytes(running.built.weights.size)
    weights[...] = running.built.weights
    built = replace(running.built, weights=weights)
    if running.formulas is None:
        return Model(model.name, FixedSizes(built, running.code, report.notes), report)
    return Model(model.name, AllSizes(replace(built, plan=running.formulas), running.code, report.notes), report)
