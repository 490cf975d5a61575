"""Whole networks with inputs: the light models inside the `onnx` package, trained ones inside other packages, and
what `benchmarks.exports` has written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from benchmarks import exports, packaged

LIGHT = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1", "inception_v2", "bvlc_alexnet")
ALIKE = {"resnet50_legacy"}  # another form of the file of a network that is there


@dataclass(frozen=True)
class Network:
    """One network with one set of inputs; `family` is that of the page, `bind` are inputs fixed at compile time."""

    name: str
    family: str
    path: Path
    inputs: dict[str, np.ndarray] = field(repr=False)
    bind: dict[str, np.ndarray] = field(default_factory=dict)


def networks(families: Sequence[str], folders: Sequence[Path], packages: Path) -> Iterator[Network]:
    """The light models (`model`), trained ones fetched into the folder `packages` (`packaged`), then those of the
    exported networks that are in one of the `folders` (`exported`).

    All but light ones come with two sets of inputs, of different shapes if they can be, named by the first one's shape.
    """
    if "model" in families:
        for name in LIGHT:
            path = light_model(name)
            yield Network(path.stem, "model", path, random_inputs(path))
    for name, model in packaged.MODELS.items() if "packaged" in families else ():
        bind = {n: np.array(v, np.int64) for n, v in model.bind.items()}
        for k in (0, 1):
            feeds = model.make(np.random.default_rng(k), k)
            yield Network(f"{name} {_shape(feeds)}", "packaged", model.path(packages), feeds, bind)
    for name, network in exports.NETWORKS.items():
        found = [p for folder in folders if (p := folder / f"{name}.onnx").exists()]
        if "exported" in families and found and name not in ALIKE:
            for feeds in network.feeds(np.random.default_rng(7)):
                yield Network(f"{name} {_shape(feeds)}", "exported", found[0], feeds)


def _shape(feeds: dict[str, np.ndarray]) -> str:
    return "x".join(map(str, next(iter(feeds.values())).shape))


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
