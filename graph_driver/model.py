"""A compiled model: `Model`, and `load` for one in a compiled directory. `compile_model.py` makes them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_driver.execution.control import ControlNode
from graph_driver.execution.execute import Executor, Observer
from graph_driver.planning.plan import Plan
from graph_driver.program import Code
from graph_driver.report import Report
from poly.errors import ArgumentError

if TYPE_CHECKING:
    from graph_driver.execution.reference import HostNode
    from graph_driver.fusion.joined import Group
    from graph_driver.ir import Graph


class Model:
    """A compiled model. Call it with a dictionary of arrays; it gives one back.

    `plan` (steps, slots, peak, bound) and `graph` (None after `load`) can be looked at.
    """

    def __init__(self, name: str, code: Code, plan: Plan, weights: np.ndarray,
                 hosts: Sequence[HostNode | ControlNode],
                 report: Report, graph: Graph | None = None, groups: Sequence[Group] = ()) -> None:  # fmt: skip
        self.name, self.code, self.plan, self.graph = name, code, plan, graph
        self.groups = tuple(groups)
        self.hosts = tuple(hosts)
        self.weights = weights
        self._report = report
        self._executor: Executor | None = None
        self._linking = threading.Lock()

    def executor(self) -> Executor:
        """The loaded program (linked at first use)."""
        with self._linking:
            if self._executor is None:
                from emit.run_time import threadpool

                runtime = threadpool.handle(self.code.threads) if self.code.threads > 1 else 0
                self._executor = Executor(self.plan, self.weights, self.hosts, self.code.link(), runtime or 0)
            return self._executor

    def __call__(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        """Run in `graph` mode, from any thread; outputs named in `out` are written to those arrays.

        Raises:
            ArgumentError: names, dtypes or shapes do not fit.
        """
        return (self._executor or self.executor()).run(inputs, out)

    def eager(self, inputs: Mapping[str, Any], observer: Observer | None = None) -> dict[str, Any]:
        """Run step by step; see `Executor.run_eager`."""
        return self.executor().run_eager(inputs, observer)

    def inspect(self, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Values of any tensors of the graph in an eager run.

        A tensor that lives only inside a fused kernel is computed by the reference from the
        kernel's inputs (possible while the graph is at hand, not after `load`).

        Raises:
            ModelError: there is no such tensor, or it is inside a kernel of a loaded model.
        """
        from graph_driver.execution.look import inspect_tensors

        return inspect_tensors(self, inputs, names)

    def save(self, folder: str | Path) -> None:
        """Write a compiled directory (see `graph_driver.artifacts.package`). Raises `BuildError`."""
        from graph_driver.artifacts.package import save

        save(self, Path(folder))

    def report(self) -> Report:
        """What was compiled, what runs on the host and why, memory, times."""
        return self._report

    def inputs_for(
        self, given: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape of all inputs beside arrays of the shapes `given`; `sizes` are values of symbolic sizes.

        Raises:
            ArgumentError: there is no such size.
        """
        if sizes:
            raise ArgumentError(f"size {next(iter(sizes))} is fixed: the model was compiled for {self.shapes_text()}")
        return self.inputs

    def shapes_text(self) -> str:
        """The inputs with their shapes in one line."""
        return ", ".join(f"{n}{list(shape)}" for n, (_, shape) in self.inputs.items())

    @property
    def inputs(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """dtype and shape by input name."""
        return {n: (self.plan.slots[n].dtype or "", self.plan.slots[n].shape or ()) for n in self.plan.inputs}


def load(folder: str | Path) -> Model:
    """Load a compiled directory: no ONNX file needed. Raises `BuildError` when it is damaged."""
    from graph_driver.artifacts.package import load as load_package

    return load_package(Path(folder))
