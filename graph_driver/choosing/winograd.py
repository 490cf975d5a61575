"""3x3 convolutions of stride 1 become Winograd's where a model of the cost predicts a gain.

Target-specific and approximate (a few bits of rounding more than the direct form), so
`exact` compilation leaves it out. The filters are transformed here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from polyc.frontend_dsl.library.winograd import TAPS, sum_of_rows, tiles, transformed_filters
from polyc.graph_driver.graph.ir import Graph, Node, Tensor
from polyc.graph_driver.graph.provenance import Off, known, note
from polyc.graph_driver.graph.size import Extent, evaluate
from polyc.graph_driver.operators.winograd import DOMAIN
from polyc.poly.dtypes import f32
from polyc.poly.records import dataclass
from polyc.poly.target import Target
from polyc.scheduler.cost.model import Work, at_level, nominal
from polyc.scheduler.cost.near_blocks import near_bytes, saves
from polyc.scheduler.cost.panels import lines_together, room

TILES = (2, 4)
DIRECT_SHARE = 0.8  # of the FMA peak that the direct form reaches (measured)
PRODUCT_SHARE = 0.9  # and the matrix products
TRANSFORM = 1.4  # cycles for an element of V or M on 256-bit vectors: made, stored and read (measured)
GAIN = 1.1  # the predicted speed-up from which it is worth the kernels and the rounding (choosing/candidates.py)


@dataclass(frozen=True)
class Shape:
    """A convolution: `batch` images (the representative number of `images`, which may be a formula), `channels`
    (in, out), `out` (height, width), `begin` the padding."""

    batch: int
    channels: tuple[int, int]
    out: tuple[int, int]
    begin: tuple[int, int]
    images: Extent

    def tiles(self, m: int) -> int:
        """Tiles of `m` x `m` that cover all outputs of all images (of one channel)."""
        return self.batch * self.tiles_of_one(m)

    def tiles_of_one(self, m: int) -> int:
        """Those of one image."""
        return tiles(self.out[0], m) * tiles(self.out[1], m)


def winograd_work(s: Shape, m: int, target: Target) -> Work:
    """Tiles of m x m: the products, the stream of their filters, and the transforms."""
    count, p = (m + TAPS - 1) ** 2, s.tiles(m)
    c, o = s.channels
    filters = 4 * count * c * o
    transforms = TRANSFORM * count * p * (c + o) * 8 / target.lanes(32)
    return Work(
        flops=2.0 * count * p * c * o / PRODUCT_SHARE,
        operations=transforms * nominal(target).operations,
        read={"memory": filters} if filters > target.l2 else {},  # as candidates._moved
    )


def handed_on(s: Shape, m: int, target: Target) -> Work:
    """The transformed tiles and the products, where one kernel leaves them beyond L2 and the next waits for them; in
    blocks of rows instead the filters, which each block reads again."""
    count, p = (m + TAPS - 1) ** 2, s.tiles(m)
    moved: dict[str, float] = {}
    rows = rows_of_block(s, m, target)
    if rows is not None:
        filters = 4 * count * prod(s.channels)
        level = at_level(filters, target)
        blocks = s.batch * tiles(tiles(s.out[0], m), rows)
        return Work(read={str(level): float(blocks * filters)} if level in ("l3", "memory") else {})
    for channels in s.channels:
        size = 4 * count * p * channels
        level = at_level(size // 2, target)  # a kernel has the cache for itself
        if level not in (None, "l2"):
            moved[str(level)] = moved.get(str(level), 0.0) + size
    return Work(read=moved, write=moved)


def rows_of_block(s: Shape, m: int, target: Target) -> int | None:
    """Rows of tiles in a block of `frontend_dsl.library.winograd_blocks`; None where the three operators one after
    another are better: all that they hand on stays in L2, or a row does not, or the filters that every block reads
    again are more (the rules of `scheduler/strategies/product_blocks.py`)."""
    count, (c, o) = (m + TAPS - 1) ** 2, s.channels
    high, wide = tiles(s.out[0], m), tiles(s.out[1], m)

    def near(rows: int) -> int:
        """Bytes of padded rows, tiles, products and rows of results of a block."""
        padded_rows = (rows * m + TAPS - 1) * (wide * m + TAPS - 1) * c
        return 4 * (padded_rows + count * rows * wide * (c + o) + rows * m * m * wide * o)

    fits = [r for r in range(1, high) if near(r) <= near_bytes(target)]
    if not fits or s.batch * near(high) <= target.l2:
        return None
    rows = min(fits, key=lambda r: (tiles(high, r) * r, -r))  # no more rows than the image has, then few blocks
    handed, blocks = s.batch * tiles(high, rows) * near(rows), s.batch * tiles(high, rows)
    return rows if saves(handed, blocks, 4 * count * c * o, target) else None


def use_winograd(graph: Graph, tiles: Mapping[tuple[str, ...], int], target: Target) -> dict[str, int]:
    """Replace the convolutions that `tiles` names by their results, with the size of their tiles."""
    count = 0
    nodes: list[Node] = []
    for node in graph.nodes:
        m = tiles.get(tuple(node.outputs))
        shape = None if m is None else shape_of(graph, node)
        if shape is None or m is None:
            nodes.append(node)
            continue
        nodes += _replacement(graph, node, shape, m, target)
        count += 1
    graph.nodes = nodes
    return {"convolutions": count}


def shape_of(graph: Graph, node: Node) -> Shape | None:
    """The convolution, when it is a dense 3x3 one of stride 1 on f32 with constant weights."""
    if node.kind != "Conv":
        return None
    x, w, y = (graph.tensors[n] for n in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if w.const is None or not (x.static and y.static) or x.dtype != f32 or w.const.shape[2:] != (TAPS, TAPS):
        return None
    if len(node.inputs) > 2 and node.inputs[2] and graph.constant(node.inputs[2]) is None:
        return None
    ones = all(v == 1 for key in ("strides", "dilations") for v in node.attrs.get(key, ()))
    if not ones or node.attrs.get("group", 1) != 1:
        return None
    assert x.shape is not None and y.shape is not None
    if not all(isinstance(n, int) for n in (*x.shape[1:], *y.shape[1:])):
        return None  # tiles are numbered by image, row and column, which is affine for any number of images alone
    begin = _begin(node, x.shape[2:], y.shape[2:])
    if begin is None:
        return None
    images = x.shape[0]
    batch = images if graph.symbols is None else evaluate(images, graph.symbols.typical)
    return Shape(batch, (w.const.shape[1], w.const.shape[0]), (y.shape[2], y.shape[3]), begin, images)


def _begin(node: Node, size: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, int] | None:
    """Padding above and to the left; None for forms that are not meant here (negative)."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = tuple(node.attrs.get("pads", (0, 0, 0, 0)))
        begin = pads[:2]
        if min(pads) < 0:
            return None
    else:
        totals = [o + TAPS - 1 - n for n, o in zip(size, out, strict=True)]
        begin = tuple(t - t // 2 if auto == "SAME_LOWER" else t // 2 for t in totals)
    return begin[0], begin[1]


def _replacement(graph: Graph, node: Node, s: Shape, m: int, target: Target) -> list[Node]:
    """The three nodes, or the one that does the same in blocks."""
    weights = graph.tensors[node.inputs[1]].const
    assert weights is not None
    count, p = (m + TAPS - 1) ** 2, s.images * s.tiles_of_one(m)
    u = _constant(graph, f"{node.inputs[1]}.winograd{m}", lambda: transformed_filters(weights, m))
    _note_rounding(graph.tensors[u].const, weights, m)
    given = node.inputs[2] if len(node.inputs) > 2 else ""
    bias = given or _constant(graph, f"{node.outputs[0]}.bias", lambda: np.zeros(s.channels[1], np.float32))
    rows = rows_of_block(s, m, target)
    if rows is not None:
        attrs = {"m": m, "pads": list(s.begin), "rows": rows}
        return [Node(node.name, "WinogradBlocks", [node.inputs[0], u, bias], list(node.outputs), attrs, DOMAIN)]
    v, products = (graph.fresh(f"{node.outputs[0]}.{part}") for part in ("tiles", "products"))
    columns = room(p, [4 * c for c in s.channels], count, target) if isinstance(p, int) else p
    graph.tensors[v] = Tensor(v, f32, (count, s.channels[0], columns))
    graph.tensors[products] = Tensor(products, f32, (count, columns, s.channels[1]))
    attrs = {"m": m, "pads": list(s.begin), "out": list(s.out)}
    unused = {} if columns == p else {"unused": columns - p}
    images_apart = 4 * s.out[0] * s.out[1]
    after = {"m": m, "staged": int(lines_together(images_apart, target) < s.channels[1])}
    return [
        Node(f"{node.name}.input", "WinogradInput", [node.inputs[0]], [v], attrs, DOMAIN),
        Node(f"{node.name}.products", "WinogradProducts", [v, u], [products], unused, DOMAIN),
        Node(node.name, "WinogradOutput", [products, bias], list(node.outputs), after, DOMAIN),
    ]


def _note_rounding(u: np.ndarray | None, weights: np.ndarray, m: int) -> None:
    """How far transformed filters may be from those of the exact weights: computed in f64 and rounded once."""
    largest = float(np.max(np.abs(weights), initial=0))
    most = largest * sum_of_rows(m) ** 2
    relative, absolute = 2.0**-24 * (1 + 2.0**-20), most * 2.0**-45 + 2.0**-149
    for origin in known(weights):
        off = origin if isinstance(origin, Off) else Off(float("inf"), float("inf"))
        absolute += (off.relative * largest + off.absolute) * sum_of_rows(m) ** 2 * (1 + 2.0**-20)
    note(u, Off(relative, absolute))


def _constant(graph: Graph, stem: str, make: Callable[[], np.ndarray]) -> str:
    name = graph.fresh(stem)
    value = make()
    graph.tensors[name] = Tensor(name, f32, value.shape, value)
    return name
