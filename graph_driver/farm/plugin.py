"""What makes workers known for the work that suits them, those that join later, too."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import Worker, WorkerPlugin

from polyc.graph_driver.farm.onworker import facts


class Suited(WorkerPlugin):
    """Gives a worker the Dask resource `resource`, as many as it has threads, if the target of `data` suits it."""

    idempotent = True

    def __init__(self, resource: str, data: dict[str, Any] | None) -> None:
        self.resource, self.data = resource, data
        self.name = resource

    async def setup(self, worker: Worker) -> None:
        """Called on every worker."""
        if await asyncio.to_thread(facts, self.resource, self.data) is None:
            await worker.set_resources(**{self.resource: worker.state.nthreads})
