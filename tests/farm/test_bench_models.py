"""Models that go to the workers of a farm: whole, also where their weights lie in files of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import polyc
from polyc.graph_driver.cli.bench import whole_file


def saved(folder: Path) -> Path:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] x) => (float[2,3] y) { y = Mul(x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.arange(6, dtype="f").reshape(2, 3), "w"))
    path = folder / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_external_data_is_put_in(tmp_path: Path) -> None:
    path = saved(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "m.onnx").write_bytes(whole_file(path))
    assert path.stat().st_size and b"m.data" in path.read_bytes()
    (w,) = onnx.load(alone / "m.onnx").graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(w), np.arange(6, dtype="f").reshape(2, 3))


def test_external_data_that_is_missing_is_one_line(tmp_path: Path) -> None:
    path = saved(tmp_path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(polyc.BuildError, match=r"m\.onnx: its external data cannot be sent to workers: .*") as caught:
        whole_file(path)
    assert "\n" not in str(caught.value)


def test_other_files_go_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff\xff no model")
    assert whole_file(path) == b"\xff\xff no model"
