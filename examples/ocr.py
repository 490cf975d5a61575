"""Reading a picture of text with three networks: where is text, is it upside down, what does it say.

The networks (PP-OCR, in the package rapidocr-onnxruntime) come as functions from array to array, so
that anything that runs them can be plugged in. What stands around them is here: differentiable
binarisation's boxes (Liao et al. 2020) by connected components, and CTC decoding (Graves et al. 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

Network = Callable[[np.ndarray], np.ndarray]

THRESHOLD, SURE_BOX, UNCLIP = 0.3, 0.5, 1.6  # of a pixel, of a box's mean; how far a box grows
SMALLEST = 4  # pixels on the shorter side of what is still taken for text
LINE_HEIGHT, LINE_WIDTH = 48, 480  # of the recognition network's input
TURN_WIDTH, SURE_TURN = 192, 0.9


@dataclass(frozen=True)
class Line:
    """A line of text. `corners`: f64[4, 2] as (x, y), from its top left, clockwise as one reads."""

    corners: np.ndarray
    text: str
    score: float
    turned: bool


def read(page: Image.Image, detect: Network, turn: Network, recognise: Network, alphabet: Sequence[str]) -> list[Line]:
    """All lines of a page, from top to bottom. Both sides of the page must be multiples of 32."""
    probability = detect(normalised(page))[0, 0]
    lines = []
    for corners in boxes(probability):
        crop = straightened(page, corners)
        unturned, upside_down = turn(normalised(fitted(crop, TURN_WIDTH)))[0]
        turned = bool(upside_down > max(unturned, SURE_TURN))
        if turned:
            crop, corners = crop.rotate(180), np.roll(corners, 2, axis=0)
        scores = recognise(normalised(fitted(crop, LINE_WIDTH)))[0]
        text, score = decoded(scores, alphabet)
        lines.append(Line(corners, text, score, turned))
    return sorted(lines, key=lambda line: float(line.corners[:, 1].mean()))


def normalised(picture: Image.Image | np.ndarray) -> np.ndarray:
    """f32[1, 3, height, width] in [-1, 1], blue first, as the networks were trained."""
    pixels = np.asarray(picture, np.float32) / 255
    return np.ascontiguousarray(((pixels - 0.5) / 0.5)[..., ::-1].transpose(2, 0, 1)[None])


def fitted(crop: Image.Image, width: int) -> np.ndarray:
    """u8[48, width, 3]: the crop scaled to the height, squeezed if it is too long, grey to its right."""
    scaled = min(width, max(1, round(crop.width * LINE_HEIGHT / crop.height)))
    canvas = np.full((LINE_HEIGHT, width, 3), 127.5, np.float32)
    canvas[:, :scaled] = np.asarray(crop.resize((scaled, LINE_HEIGHT), Image.Resampling.BILINEAR))
    return canvas


# Detection


def boxes(probability: np.ndarray) -> Iterator[np.ndarray]:
    """Corners f64[4, 2] of each region that is probably text, grown to the whole letters.

    The network is trained on shrunken regions; the distance `area * UNCLIP / perimeter` undoes that.
    """
    for y, x in components(probability > THRESHOLD):
        centre, axes, (long, short) = smallest_rectangle(np.stack([x, y], 1).astype(np.float64))
        if short < SMALLEST or probability[y, x].mean() < SURE_BOX:
            continue
        grow = long * short * UNCLIP / (2 * (long + short))
        half = np.array([long / 2 + grow, short / 2 + grow])
        yield centre + (np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * half) @ axes


def components(mask: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and columns of the pixels of each connected region (8 neighbours).

    Runs of each row are joined with the runs of the row above that they touch (union-find).
    """
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, stops = np.nonzero(edges == -1)
    parent = list(range(len(rows)))

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    first = np.searchsorted(rows, np.arange(mask.shape[0] + 1))
    for row in range(1, mask.shape[0]):
        above = np.arange(first[row - 1], first[row])
        for k in range(first[row], first[row + 1]):
            for j in above[(starts[above] <= stops[k]) & (stops[above] >= starts[k])]:
                parent[root(k)] = root(int(j))
    runs_of: dict[int, list[int]] = {}
    for k in range(len(rows)):
        runs_of.setdefault(root(k), []).append(k)
    for runs in runs_of.values():
        y = np.concatenate([np.full(stops[k] - starts[k], rows[k]) for k in runs])
        x = np.concatenate([np.arange(starts[k], stops[k]) for k in runs])
        yield y, x


def smallest_rectangle(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, axes (rows: along the text, down) and sizes of the rectangle of least area, to half a degree.

    The text is taken to run rightwards, tilted by less than 45 degrees.
    """
    best: tuple[float, np.ndarray, np.ndarray, np.ndarray] | None = None
    for angle in np.deg2rad(np.arange(-44.5, 45, 0.5)):
        axes = np.array([(np.cos(angle), np.sin(angle)), (-np.sin(angle), np.cos(angle))])
        turned = points @ axes.T
        low, high = turned.min(0), turned.max(0)
        size = high - low + 1
        area = float(size.prod())
        if best is None or area < best[0]:
            best = area, (low + high) / 2 @ axes, axes, size
    assert best is not None
    return best[1:]


def straightened(page: Image.Image, corners: np.ndarray) -> Image.Image:
    """The picture inside a box, its text level."""
    width = round(float(np.linalg.norm(corners[1] - corners[0])))
    height = round(float(np.linalg.norm(corners[3] - corners[0])))
    quad = corners[[0, 3, 2, 1]].reshape(-1).tolist()  # PIL's order: top left, bottom left, bottom right, top right
    return page.transform((width, height), Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)


# Recognition


def alphabet_of(characters: str) -> list[str]:
    """Symbols by number, from the network's own list (a line each): the blank first, a space last."""
    return ["", *characters.splitlines(), " "]


def decoded(scores: np.ndarray, alphabet: Sequence[str]) -> tuple[str, float]:
    """The most probable symbol of each step, repetitions and blanks dropped; and their mean probability."""
    best, sure = scores.argmax(1), scores.max(1)
    kept = (best != 0) & (best != np.r_[-1, best[:-1]])
    return "".join(alphabet[k] for k in best[kept]), float(sure[kept].mean()) if kept.any() else 0.0
