"""Last writes are searched for only where pairs that touch one element would be wrong."""

from __future__ import annotations

import pytest

from benchmarks.schedule_time import programs
from polyc.emit import targets
from polyc.emit.gpu import targets as gpu_targets
from polyc.poly import dependences, json_io
from polyc.scheduler.strategies.auto import automatic


@pytest.mark.parametrize("target", ["x86-64-v3", "sm_80"])
@pytest.mark.parametrize("name", ["layer_norm/512x768", "conv/64x56"])
def test_buffers_of_sums_need_no_search(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the schedule of attention on OpenCL was isl's search for last writes."""

    def searched(*_: object) -> None:
        raise AssertionError("isl searches for the last writes")

    monkeypatch.setattr(dependences, "_searched", searched)
    ((_, text),) = programs(f"^{name}$")
    machine = (gpu_targets if gpu_targets.is_gpu(target) else targets).get(target)
    assert automatic(json_io.loads(text), machine).trace
