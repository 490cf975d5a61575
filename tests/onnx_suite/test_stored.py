"""The models that come as files with onnx: simple ones, and those converted from PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx.backend.test.runner import Runner

from polyc.graph_driver import onnx_backend

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
# Neither polyc nor onnx.reference has the operator Gradient (of training).
REFUSED = {"test_gradient_of_add", "test_gradient_of_add_and_mul"}


def read(folder: Path, kind: str, infos: Any) -> list[Any]:
    """The tensors and sequences of one data set, as the suite reads them."""
    found: list[Any] = []
    for k in range(len(list(folder.glob(f"{kind}_*.pb")))):
        Runner._load_proto(None, str(folder / f"{kind}_{k}.pb"), found, infos[k].type)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("kind", "count"), [("simple", 23), ("pytorch-converted", 82), ("pytorch-operator", 35)])
def test_stored_models(kind: str, count: int) -> None:
    folders = sorted((DATA / kind).glob("test_*"))
    assert len(folders) == count
    for folder in folders:
        if folder.name in REFUSED:
            continue
        model = onnx.load(folder / "model.onnx")
        rep = onnx_backend.prepare(model)
        for data in sorted(folder.glob("test_data_set*")):
            outputs = rep.run(read(data, "input", model.graph.input))
            wanted = read(data, "output", model.graph.output)
            Runner.assert_similar_outputs(wanted, outputs, 1e-3, 1e-7, str(folder))
        assert kind == "simple" or not any(m.report().host for m in rep.models), folder.name
