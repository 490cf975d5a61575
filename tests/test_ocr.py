"""The parts of the demo that stand around its networks, against brute force and known answers."""

import numpy as np

from examples.ocr import alphabet_of, boxes, components, decoded, smallest_rectangle


def flooded(mask: np.ndarray) -> set[frozenset[tuple[int, int]]]:
    """Connected regions by flood fill."""
    left, regions = {(int(y), int(x)) for y, x in zip(*np.nonzero(mask))}, set()
    while left:
        region, pending = set(), [left.pop()]
        while pending:
            y, x = pending.pop()
            region.add((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            pending += near
        regions.add(frozenset(region))
    return regions


def test_components_are_those_of_a_flood_fill() -> None:
    rng = np.random.default_rng()
    for density in (0.1, 0.3, 0.5, 0.8, 1.0, 0.0):
        mask = rng.random((rng.integers(1, 25), rng.integers(1, 25))) < density
        found = [frozenset(zip(y.tolist(), x.tolist())) for y, x in components(mask)]
        assert len(set(found)) == len(found)
        assert set(found) == flooded(mask), mask


def test_smallest_rectangle_of_a_tilted_bar() -> None:
    for degrees in (-30.0, -7.5, 0.0, 12.0, 40.0):
        turn = np.deg2rad(degrees)
        along, down = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
        y, x = np.mgrid[0:300, 0:300]
        offset = np.stack([x - 150.0, y - 140.0], -1)
        inside = (np.abs(offset @ along) <= 90) & (np.abs(offset @ down) <= 12)
        centre, axes, size = smallest_rectangle(np.stack([x[inside], y[inside]], 1).astype(np.float64))
        assert np.allclose(centre, (150, 140), atol=1.0)
        assert np.allclose(size, (180, 24), atol=3.0)
        assert abs(float(axes[0] @ along)) > np.cos(np.deg2rad(1.0))


def test_boxes_grow_and_leave_out_what_is_small_or_unsure() -> None:
    probability = np.zeros((100, 200), np.float32)
    probability[20:40, 30:130] = 0.9
    probability[60:80, 30:130] = 0.4  # above the threshold of a pixel, below that of a box
    probability[90:92, 150:190] = 0.9  # too thin
    (corners,) = boxes(probability)
    grow = 100 * 20 * 1.6 / (2 * 120)
    assert np.allclose(corners, [(29.5 - grow, 19.5 - grow), (129.5 + grow, 19.5 - grow),
                                 (129.5 + grow, 39.5 + grow), (29.5 - grow, 39.5 + grow)], atol=1.0)  # fmt: skip


def test_ctc_drops_repetitions_and_blanks() -> None:
    alphabet = alphabet_of("a\nb")
    assert alphabet == ["", "a", "b", " "]
    best = [0, 1, 1, 0, 1, 2, 2, 3, 0, 0, 2]
    scores = np.full((len(best), 4), 0.1, np.float32)
    scores[np.arange(len(best)), best] = 0.7
    text, score = decoded(scores, alphabet)
    assert text == "aab b" and np.isclose(score, 0.7)
    assert decoded(np.eye(4, dtype=np.float32)[[0, 0]], alphabet) == ("", 0.0)
