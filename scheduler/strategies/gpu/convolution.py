"""Convolutions on a GPU: implicit GEMM over tiles of output channels and of pixels in two dimensions.

The rows of the product are output channels, its columns the pixels of a rectangle. The panel of the image is the box
that the rectangle needs for some input channels, fetched once for all positions of the window; the access relation
says where each product finds its element (no matrix of patches is built). Neighbouring threads take neighbouring
pixels, so that reads of the panel lie in different banks whatever the offset in the window, and a thread's other
pixels lie a multiple of the threads apart. After Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning"
(2014), with boxes instead of columns.
"""

from __future__ import annotations

from math import prod

from polyc.poly.expr import Var, variables
from polyc.poly.forms.layout_maps import stored
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop, Statement
from polyc.poly.target import REGISTER_BYTES, GpuTarget
from polyc.poly.tree import GpuAxis, Layout, LoopKind
from polyc.scheduler.cost.gpu_tiles import CHANNEL_THREADS, CONVOLUTION_PANELS, LEAST_USED, pixel_tiles, tile_worth
from polyc.scheduler.cost.ties import above
from polyc.scheduler.programs.block_tiles import BlockTile, BlockTiling, TiledContraction
from polyc.scheduler.programs.tiles import Part
from polyc.scheduler.recognition.contraction import Contraction, Operand, extent, slope
from polyc.scheduler.recognition.group import Group

AXES: tuple[GpuAxis, ...] = ("block.x", "block.y", "block.z")


@dataclass(frozen=True)
class PixelTile:
    """`across` threads along the width with `wide` pixels each, `down` along the height with `high`, and
    `channels` output channels a thread."""

    across: int
    wide: int
    down: int
    high: int
    channels: int
    depth: int

    @property
    def size(self) -> tuple[int, int]:
        """Pixels of a block: height, width."""
        return self.down * self.high, self.across * self.wide

    @property
    def rows(self) -> int:
        """Output channels of a block."""
        return CHANNEL_THREADS * self.channels


@dataclass(frozen=True)
class Convolution:
    """`channels` moves the `weights` alone, `height` and `width` the `image`; `depth` is the input channel."""

    group: Group
    weights: Operand
    image: Operand
    channels: str
    height: str
    width: str
    depth: str
    tile: PixelTile


def convolution(scop: Scop, group: Group, target: GpuTarget) -> Convolution | None:
    """The tile for a convolution; None when the contraction is none or has too few pixels and channels."""
    c = group.contraction
    if c.sweep or len(c.outputs) < 3 or len(c.inner) < 2:
        return None
    height, width = c.outputs[-2:]
    image = next((op for op in c.operands if {height, width} <= set(op.own)), None)
    if image is None:
        return None
    weights = next(op for op in c.operands if op is not image)
    if len(weights.own) != 1 or not all(_windowed(image, n, c) for n in (height, width)):
        return None
    (channels,) = weights.own
    sizes = {o: extent(c.update, o) for o in (*c.outputs, *c.inner)}
    plain = [n for n in c.inner if any(e == Var(n) for e in image.load.index)]
    if None in sizes.values() or len(plain) != 1 or scop.arrays[c.update.array].dtype.bytes != REGISTER_BYTES:
        return None
    known = {k: v for k, v in sizes.items() if v is not None}
    tile = _best(c, image, weights, channels, plain[0], known, target)
    return None if tile is None else Convolution(group, weights, image, channels, height, width, plain[0], tile)


def _windowed(image: Operand, name: str, c: Contraction) -> bool:
    """Whether a subscript of the image is a multiple of this loop plus a place in the window."""
    found = [e for e in image.load.index if name in variables(e)]
    return len(found) == 1 and bool(variables(found[0]) & set(c.inner)) and slope(found[0], name, 1) is not None


def _best(c: Contraction, image: Operand, weights: Operand, channels: str, depth: str, sizes: dict[str, int],
          target: GpuTarget) -> PixelTile | None:  # fmt: skip
    """The tile with the most work for each element fetched from shared memory, of those that fill the GPU."""
    many = prod(sizes[o] for o in c.outputs if o not in (channels, *c.outputs[-2:]))
    best: tuple[float, PixelTile] | None = None
    for tile in (PixelTile(*numbers) for numbers in pixel_tiles(sizes[depth])):
        if _bytes(c, image, weights, tile, sizes, channels, depth) > CONVOLUTION_PANELS:
            continue
        used, blocks = 1.0, many
        for n, t in zip((*(sizes[o] for o in c.outputs[-2:]), sizes[channels]), (*tile.size, tile.rows)):
            used *= n / (-(-n // t) * t)
            blocks *= -(-n // t)
        if used < LEAST_USED:
            continue
        score = tile_worth(used, tile.wide * tile.high, tile.channels, tile.across, blocks, target.sms)
        if best is None or above(score, best[0]):
            best = score, tile
    return best[1] if best is not None else None


def _bytes(c: Contraction, image: Operand, weights: Operand, tile: PixelTile, sizes: dict[str, int], channels: str,
           depth: str) -> int:  # fmt: skip
    """Of both panels."""
    reach = dict(zip(c.outputs[-2:], tile.size)) | {channels: tile.rows + 1, depth: tile.depth}
    reach |= {n: sizes[n] for n in c.inner if n != depth}
    total = 0
    for op in (image, weights):
        box = 1
        for e in op.load.index:
            box *= 1 + sum(abs(slope(e, n, 1) or 0) * (reach.get(n, 1) - 1) for n in variables(e))
        total += box * op.load.dtype.bytes
    return total


class ConvolutionTiling(BlockTiling):
    """The loops and buffers of one convolution: a thread's pixels along the width lie `across` apart."""

    def __init__(self, scop: Scop, found: Convolution) -> None:
        t = found.tile
        tile = BlockTile(t.rows, t.size[0] * t.size[1], t.depth, t.channels, t.wide * t.high)
        super().__init__(
            scop,
            TiledContraction(found.group, found.weights, found.image, found.channels, found.width, found.depth, tile),
        )
        self.found, self.pixels = found, t

    def cuts(self) -> dict[str, tuple[int, ...]]:
        f, t = self.found, self.pixels
        high, wide = t.size
        return {
            f.channels: (t.rows, t.channels), f.height: (high, t.high), f.width: (wide, t.across), f.depth: (t.depth,),
        }  # fmt: skip

    def blocks(self) -> list[Part]:
        c, (high, wide) = self.group.contraction, self.pixels.size
        f = self.found
        sizes = {f.channels: self.tile.rows, f.height: high, f.width: wide}
        loops = sorted(c.outputs, key=lambda o: -(-(extent(c.update, o) or 1) // sizes.get(o, 1)))
        bound = [o for o in c.outputs if o in loops[-len(AXES) :]]  # those with most iterations, in order
        kinds: dict[str, LoopKind] = dict(zip(bound[::-1], AXES))
        order = [*bound, *(o for o in c.outputs if o not in bound)]
        return [Part(o, 0, kinds.get(o, "serial")) for o in order]

    def threads(self) -> list[Part]:
        f = self.found
        return [Part(f.channels, 1, "thread.z"), Part(f.height, 1, "thread.y"), Part(f.width, 2, "thread.x")]

    def points(self) -> list[Part]:
        f = self.found
        return [Part(f.channels, 2, "unroll"), Part(f.height, 2, "unroll"), Part(f.width, 1, "unroll")]

    def tile_layout(self, stmt: Statement) -> Layout:
        """The columns are the parts that lie `across` pixels apart."""
        lanes = self.dimension(stmt, self.found.width)
        rest = (f"i{k}" for k in range(len(stmt.index)) if k != lanes)
        return stored(len(stmt.index), *rest, f"floor(i{lanes}/{self.pixels.across})")
