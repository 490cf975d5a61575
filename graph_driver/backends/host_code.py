"""The code of a plan that has no kernels: its steps are those of the host and copies, so there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyc.graph_driver.backends.protocol import Code, Platform
from polyc.graph_driver.backends.stepping import SteppingExecutor
from polyc.poly.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from polyc.graph_driver.execution.control import ControlNode
    from polyc.graph_driver.execution.executor import Executor
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode
    from polyc.graph_driver.planning.plan import Plan


@dataclass
class HostCode(Code):
    """Nothing but the platform: runs need no native program, which would have to be made first."""

    platform: Platform

    def start(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str]
    ) -> SteppingExecutor:
        """The plan with its memory."""
        return SteppingExecutor(plan, weights, hosts, {})

    def start_at(
        self, plan: Plan, weights: np.ndarray, hosts: Sequence[HostNode | ControlNode | PythonCall], notes: list[str],
        table: np.ndarray, beside: Executor | None,
    ) -> SteppingExecutor:  # fmt: skip
        """The plan at the sizes of a call, with its memory."""
        return SteppingExecutor(plan, weights, hosts, {}, table)
