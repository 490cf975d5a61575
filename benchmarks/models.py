"""The light models inside the `onnx` package, with random inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

LIGHT = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1", "inception_v2", "bvlc_alexnet")


def light_model(name: str) -> Path:
    """One of the nine light models."""
    import onnx.backend.test

    return Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"


def random_inputs(path: Path) -> dict[str, np.ndarray]:
    """Normal f32 inputs of the model's shapes (symbolic sizes are 1), seeded."""
    graph = onnx.load(str(path), load_external_data=False).graph
    constants = {t.name for t in graph.initializer}
    rng = np.random.default_rng(7)
    return {
        i.name: rng.standard_normal([d.dim_value or 1 for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in graph.input
        if i.name not in constants
    }
