"""Core ATen operators on torch's own samples: a few of them always, all of them in the long suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch's own samples need it")

from . import __main__ as table  # noqa: E402
from .cases import cases, core_operators, samples  # noqa: E402
from .runs import EAGER, KERNELS, NO_GRADIENT, REFUSED, WRONG, Outcome, compared, run  # noqa: E402

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


def test_a_run_goes_on_with_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run_fake(op: Any, sample: Any, backward: bool) -> Outcome:
        ran.append(op.formatted_name)
        return Outcome(KERNELS)

    monkeypatch.setattr(table, "run", run_fake)
    (op,), kept = cases(["relu"])["relu"], tmp_path / "kept.json"
    count = sum(1 for _ in samples(op, True))
    assert count > 1
    found, left = table.Known(kept, True).outcomes(op, 1, float("inf"))
    assert (len(found), left, len(ran)) == (1, False, 1)
    assert table.Known(kept, True).outcomes(op, count, end=0.0)[1], "the time was over: samples are left"
    for _ in range(2):  # the second run finds all of them
        found, left = table.Known(kept, True).outcomes(op, 1 << 30, float("inf"))
        assert (len(found), left, len(ran)) == (count, False, count)
    with pytest.raises(SystemExit, match="other direction"):
        table.Known(kept, False)


def test_outcomes_of_two_versions_are_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "run", lambda op, sample, backward: Outcome(KERNELS))
    (op,), kept = cases(["relu"])["relu"], tmp_path / "kept.json"
    table.Known(kept, True).outcomes(op, 1, float("inf"))
    assert table.Known(kept, True).found and not capsys.readouterr().out
    monkeypatch.setattr(table, "sources", lambda: "another")
    later = table.Known(kept, True)
    assert not later.found and "another version" in capsys.readouterr().out
    before = kept.read_text()
    monkeypatch.setattr(table, "sources", lambda: "a third")
    with pytest.raises(SystemExit, match="changed during the run"):
        later.outcomes(op, 1, float("inf"))
    assert kept.read_text() == before


def test_what_has_no_gradient_counts_for_nothing() -> None:
    for name in ("argmax", "_to_copy"):
        kinds = set()
        for op in (o for o in cases([name])[name] if o.formatted_name in ("argmax", "int")):
            kinds |= {run(op, sample, backward=True).kind for sample in list(samples(op, op.supports_autograd))[:1]}
        assert kinds == {NO_GRADIENT}, (name, kinds)


def test_the_judge_of_differences_in_rounding_is_eager_mode_in_double() -> None:
    """The norm of a single element is 0, and so is the gradient of its weight; in eager mode it is -6.5e-5."""
    x, calls = torch.tensor([-8.4784]), []

    def norm(x: Any, w: Any) -> tuple[Any, ...]:
        return torch.native_layer_norm(x, (1,), w, None, 1e-5)[:1]

    def another_each_time(x: Any) -> tuple[Any, ...]:
        calls.append(x)
        return (x * len(calls),)

    assert compared(norm, [x, x], [True, True], "norm").kind == KERNELS
    assert compared(another_each_time, [x], [False], "multiple").kind == WRONG


@pytest.mark.long
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", core_operators())
def test_no_sample_is_wrong(name: str, backward: bool) -> None:
    for op in cases([name])[name]:
        if backward and not op.supports_autograd:
            continue
        for k, sample in enumerate(samples(op, backward)):
            outcome = run(op, sample, backward)
            assert outcome.kind in (KERNELS, EAGER, REFUSED, NO_GRADIENT), (op.formatted_name, k, outcome)
