"""A slice of `python -m tests.graph_driver.corruption`; operands that no result depends on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from corruption import RULES, campaign, corrupted, table
from onnx import TensorProto, helper
from tiny_models import model_of, network

from polyc.graph_driver.importing.importer import import_model
from polyc.graph_driver.verifying.verify import verify
from polyc.poly.errors import ModelError


def test_a_slice_is_caught_whole() -> None:
    verdicts = list(campaign(range(100_000, 100_000 + 2 * len(RULES))))
    assert [v for v in verdicts if not v.caught] == []
    assert {v.rule for v in verdicts} == {r.name for r in RULES}, table(verdicts)


@pytest.mark.long
def test_two_thousand() -> None:
    verdicts = list(campaign(range(200_000, 202_000)))
    assert sum(v.caught for v in verdicts) >= 0.99 * len(verdicts), table(verdicts)


def test_corruption_is_repeatable_and_starts_from_a_sound_graph() -> None:
    for seed in range(5):
        assert str(corrupted(seed)[2].nodes) == str(corrupted(seed)[2].nodes)
    graph = import_model(network(), dims={"N": 2})
    verify(graph)


def one(op: str, shapes: list[list[int]], **attrs: Any) -> onnx.ModelProto:
    names = [f"i{k}" for k in range(len(shapes))]
    inputs = {n: (TensorProto.INT64, s) if op == "ScatterElements" and n == "i1" else s for n, s in zip(names, shapes)}
    used = [n if s is not None else "" for n, s in zip(names, shapes)]
    return model_of([helper.make_node(op, used, ["y"], "it", **attrs)], inputs, {"y": None}, {}, opset=18)


LSTM = [[5, 2, 3], [1, 16, 3], [1, 16, 4], [1, 32]]


@pytest.mark.parametrize(
    ("make", "which", "wrong"),
    [
        (lambda s: one("Conv", [[1, 4, 8, 8], s, [6]]), [6, 4, 3, 3], ([6, 5, 3, 3], [7, 4, 3, 3], [6, 4, 3])),
        (lambda s: one("Conv", [[1, 4, 8, 8], s], group=2), [6, 2, 3, 3], ([6, 4, 3, 3], [5, 2, 3, 3])),
        (lambda s: one("ConvTranspose", [[1, 4, 8, 8], s, [6]]), [4, 6, 3, 3], ([5, 6, 3, 3], [4, 7, 3, 3])),
        (lambda s: one("BatchNormalization", [[1, 4, 8], [4], [4], s, [4]]), [4], ([5], [1], [4, 1])),
        (lambda s: one("Gemm", [[2, 3], s, [5]]), [3, 5], ([4, 5], [3, 6])),
        (lambda s: one("Gemm", [[2, 3], [5, 3], s], transB=1), [5], ([4], [3, 5], [2, 1, 5])),
        (lambda s: one("LSTM", [LSTM[0], s, *LSTM[2:]], hidden_size=4), [1, 16, 3], ([1, 16, 2], [1, 12, 3])),
        (lambda s: one("LSTM", [*LSTM[:2], s, LSTM[3]], hidden_size=4), [1, 16, 4], ([1, 16, 3], [1, 12, 4])),
        (lambda s: one("LayerNormalization", [[2, 3, 8], s]), [8], ([7], [3, 8], [2, 3, 8])),
        (lambda s: one("PRelu", [[2, 3, 8], s]), [3, 1], ([2, 1], [1, 2, 3, 8])),
        (lambda s: one("ScatterElements", [[4, 3], [2, 3], s]), [2, 3], ([2, 2], [3])),
        (lambda s: one("ScatterElements", [[4, 3], [2, 3], [2, 3]], axis=s[0]), [-2], ([2], [-3])),
    ],
)  # fmt: skip
def test_operands_that_no_result_depends_on(
    make: Callable[[list[int]], onnx.ModelProto], which: list[int], wrong: tuple[list[int], ...]
) -> None:
    """onnx's inference accepts these: the shape of the result follows from the other operands."""
    import_model(make(which))
    for shape in wrong:
        with pytest.raises(ModelError, match="it'") as error:
            import_model(make(shape))
        assert "\n" not in str(error.value)


def test_attributes_that_an_operator_lacks() -> None:
    with pytest.raises(ModelError, match="there is no attribute nosuch"):
        import_model(one("LayerNormalization", [[2, 3, 8], [8]], nosuch=1))
    assert np.prod(import_model(one("LayerNormalization", [[2, 3, 8], [8]], __note=1)).tensors["y"].shape) == 48


def test_the_page_lists_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "graph-rules.md").read_text(encoding="utf-8")
    assert [r.name for r in RULES if f"| {r.name} | {r.why} | `{r.break_.__name__}` |" not in page] == []
