"""Core ATen operators on torch's own samples: a few of them always, all of them in the long suite."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's own samples need it")

from .cases import cases, core_operators, samples
from .runs import EAGER, KERNELS, REFUSED, run

SHORT = ("add", "amax", "cat", "gather", "scatter", "arange", "where", "native_group_norm")
MOST = 12  # samples of an OpInfo in the short run


@pytest.mark.parametrize("name", SHORT)
def test_samples_run_in_kernels_and_equal_eager_mode(name: str) -> None:
    ran = 0
    for op in cases([name])[name]:
        for k, sample in enumerate(samples(op)):
            if k == MOST:
                break
            outcome = run(op, sample, backward=False)
            assert outcome.kind == KERNELS, (op.formatted_name, k, outcome)
            ran += 1
    assert ran


@pytest.mark.long
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", core_operators())
def test_no_sample_is_wrong(name: str, backward: bool) -> None:
    for op in cases([name])[name]:
        if backward and not op.supports_autograd:
            continue
        for k, sample in enumerate(samples(op, backward)):
            outcome = run(op, sample, backward)
            assert outcome.kind in (KERNELS, EAGER, REFUSED), (op.formatted_name, k, outcome)
