"""Products with weights of a few bits that are stored in panels, for one row at the speed of memory.

A panel has the words of neighbouring columns side by side, so a vector of words is the codes of as many columns, and
all of a panel is one run of memory. A block's products are added up before they meet its scale. In integers, where a
machine has an instruction for four products of bytes, the row is codes, too: a byte each (`digits` 1), or three, whose
sums are as good as f32's.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import abs, dot_bytes, empty, fma, grid, max, op, round
from polyc.frontend_dsl.library.narrow import Blocks
from polyc.poly.dtypes import f32, i32, u8, u32
from polyc.poly.records import dataclass

WORD, BYTES = 32, 4
LARGEST = 127.0  # of one digit
BASE = 256.0
UNPACKED = 48 << 10  # bytes of a panel's codes that are unpacked at a time, as f32: they stay in L2 for all rows
HEAD = 1 << 21  # of three digits: twice that times the power of two below the largest element fits them
PHI = float(2**23 + 1)  # (2u)^-1 + 1 for the rounding unit u = 2^-24 of f32
ONE_LESS = 1.0 - 2.0**-24
LEAST = 2.0**-100  # smaller blocks count as zeros


@dataclass(frozen=True)
class Panels:
    """`blocks` in panels of `vectors` times `lanes` columns; `rows` at a time, with `digits` bytes for each element
    (0: f32).

    Word `k` of a block has its codes 4 g + j, from `k * word` on, in byte `j` at bit `bits * g`.
    """

    blocks: Blocks
    vectors: int
    lanes: int
    digits: int
    rows: int

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def count(self) -> int:
        """Panels; the last may have columns that the matrix has not."""
        return -(-self.blocks.columns // self.width)

    @property
    def words(self) -> int:
        """Words of a block of one column."""
        return self.blocks.size * self.blocks.bits // WORD

    @property
    def groups(self) -> int:
        """Runs of four codes in a word."""
        return self.blocks.per_byte

    @property
    def codes_shape(self) -> tuple[int, int, int, int, int]:
        """Of the words."""
        return self.count, self.blocks.count, self.words, self.vectors, self.lanes

    @property
    def scales_shape(self) -> tuple[int, int, int, int]:
        """Of the scales."""
        return self.count, self.blocks.count, self.vectors, self.lanes

    @property
    def mask(self) -> int:
        """The bits of one code in each byte of a word."""
        return self.blocks.mask * 0x01010101

    @property
    def zeros_shape(self) -> tuple[int, int, int, int]:
        """Of the zero points: one for all where the matrix has none of its own."""
        return self.scales_shape if self.blocks.zero else (1, 1, 1, 1)

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Where the codes of a word are: which run, which of its four."""
        return tuple((g, j) for g in range(self.groups) for j in range(BYTES))


def make_panel_product(M: Any, w: Panels) -> Any:
    """`Y = A W` of f32 rows `A[M, inner]`: A, words, scales, zero points (bytes, or f32 for `real` ones)."""
    if w.digits:
        return _in_integers(M, w)
    return _of_one_row(w) if M == 1 else _of_rows(M, w)


def _of_one_row(w: Panels) -> Any:
    block, size, K, N = w.blocks, w.blocks.size, w.blocks.inner, w.blocks.columns
    blocks, P, vectors = block.count, w.lanes, tuple(range(w.vectors))
    codes, scales, zeros, Z_TYPE = w.codes_shape, w.scales_shape, w.zeros_shape, f32 if block.zero == "real" else u8
    per = w.groups * BYTES

    @op
    def panel_product(A: f32[1, K], W: u32[codes], S: f32[scales], Z: Z_TYPE[zeros]) -> f32[1, N]:
        Y = empty((1, N), f32)
        X, total = empty((blocks, size), f32), empty((blocks,), f32)
        for b in range(blocks):
            total[b] = 0.0
            for e in range(size):
                X[b, e] = 0.0
                if b * size + e < K:
                    X[b, e] = A[0, b * size + e]
            for e in range(size):
                total[b] += X[b, e]
        for q in range(w.count):
            y = empty((w.vectors, P), f32)
            for p in range(P):
                for v in vectors:
                    y[v, p] = 0.0
            for b in range(blocks):
                t = empty((w.vectors, P), f32)
                for p in range(P):
                    for v in vectors:
                        t[v, p] = -f32(Z[place((q, b, v, p), block)]) * total[b]
                for k in range(w.words):
                    for p in range(P):
                        for v in vectors:
                            t[v, p] = with_products(t[v, p], X, (b, k * per), W[q, b, k, v, p], w.places, block)
                for p in range(P):
                    for v in vectors:
                        y[v, p] += t[v, p] * S[q, b, v, p]
            for p in range(P):
                for v in vectors:
                    if q * w.width + v * P + p < N:
                        Y[0, q * w.width + v * P + p] = y[v, p]
        return Y

    return panel_product


def _of_rows(M: Any, w: Panels) -> Any:
    block, size, K, N = w.blocks, w.blocks.size, w.blocks.inner, w.blocks.columns
    blocks, P, V, per = block.count, w.lanes, w.vectors, w.groups * BYTES
    codes, scales, zeros, Z_TYPE = w.codes_shape, w.scales_shape, w.zeros_shape, f32 if block.zero == "real" else u8
    together = max(1, min(UNPACKED // (w.width * size * f32.bytes), blocks))
    depth, steps = together * size, -(-blocks // together)
    parts = tuple(
        (base, n, R, tuple((r, v) for r in range(R) for v in range(V))) for base, n, R in row_parts(M, w.rows)
    )

    @op
    def panel_product_of_rows(A: f32[M, K], W: u32[codes], S: f32[scales], Z: Z_TYPE[zeros]) -> f32[M, N]:
        Y, X = empty((M, N), f32), empty((steps, M, depth), f32)
        for i, n in grid(M, N):
            Y[i, n] = 0.0
        for c, i in grid(steps, M):
            for e in range(min(depth, K - c * depth)):
                X[c, i, e] = A[i, c * depth + e]
        for q, c in grid(w.count, steps):
            D = empty((depth, V, P), f32)
            for d in range(min(together, blocks - c * together)):
                for k, v, p in grid(w.words, V, P):
                    for g, j in w.places:
                        D[d * size + k * per + g * BYTES + j, v, p] = (
                            f32(i32(unpacked(W[q, c * together + d, k, v, p], (g, j), block)))
                            - f32(Z[place((q, c * together + d, v, p), block)])
                        ) * S[q, c * together + d, v, p]
            for base, count, R, tile in parts:
                for o in range(count):
                    y = empty((R, V, P), f32)
                    for p in range(P):
                        for r, v in tile:
                            y[r, v, p] = 0.0
                    for e in range(min(depth, K - c * depth)):
                        for p in range(P):
                            for r, v in tile:
                                y[r, v, p] += X[c, base + o * R + r, e] * D[e, v, p]
                    for p in range(P):
                        for r, v in tile:
                            if q * w.width + v * P + p < N:
                                Y[base + o * R + r, q * w.width + v * P + p] += y[r, v, p]
        return Y

    return panel_product_of_rows


def _in_integers(M: Any, w: Panels) -> Any:
    block, size, K, N = w.blocks, w.blocks.size, w.blocks.inner, w.blocks.columns
    blocks, P, V, L = block.count, w.lanes, w.vectors, w.digits
    codes, scales, zeros, Z_TYPE = w.codes_shape, w.scales_shape, w.zeros_shape, f32 if block.zero == "real" else u8
    digits, group, words = tuple(range(L)), tuple(range(w.groups)), w.words
    parts = row_parts(M, w.rows)
    real = block.zero == "real"

    @op
    def panel_product_of_codes(A: f32[M, K], W: i32[codes], S: f32[scales], Z: Z_TYPE[zeros]) -> f32[M, N]:
        Y = empty((M, N), f32)
        step, X = empty((M, blocks), f32), empty((L, M, blocks, words, w.groups), i32)
        total = empty((L, M, blocks), i32)
        for i, b in grid(M, blocks):
            top, odd = f32(0), f32(0)
            code = empty((words, w.groups, BYTES), i32)
            for k, g, j in grid(words, w.groups, BYTES):
                code[k, g, j] = 0
            for k, g, j in grid(words, w.groups, BYTES):
                if b * size + (k * w.groups + g) * BYTES + j < K:
                    top = max(top, abs(A[i, b * size + (k * w.groups + g) * BYTES + j]))
                    odd += A[i, b * size + (k * w.groups + g) * BYTES + j] * 0.0
            for k, g, j in grid(words, w.groups, BYTES):
                if b * size + (k * w.groups + g) * BYTES + j < K:
                    code[k, g, j] = i32(round(A[i, b * size + (k * w.groups + g) * BYTES + j] * in_one(top, L)))
            step[i, b] = worth(top, L) + odd
            for l in digits:
                total[l, i, b] = 0
            for k, g, j in grid(words, w.groups, BYTES):
                for l in digits:
                    total[l, i, b] += digit(code[k, g, j], l, L)
            for k, g in grid(words, w.groups):
                for l in digits:
                    X[l, i, b, k, g] = (
                        (digit(code[k, g, 0], l, L) & 255)
                        | (digit(code[k, g, 1], l, L) & 255) << 8
                        | (digit(code[k, g, 2], l, L) & 255) << 16
                        | digit(code[k, g, 3], l, L) << 24
                    )
        for base, count, R in parts:
            for q, o in grid(w.count, count):
                y = empty((R, V, P), f32)
                for p in range(P):
                    for v, r in pairs(V, R):
                        y[r, v, p] = 0.0
                for b in range(blocks):
                    t = empty((L, R, V, P), i32)
                    for p in range(P):
                        for l in digits:
                            for v, r in pairs(V, R):
                                t[l, r, v, p] = (
                                    0 if real else -i32(Z[place((q, b, v, p), block)]) * total[l, base + o * R + r, b]
                                )
                    for k in range(words):
                        for p in range(P):
                            for g in group:
                                for l in digits:
                                    for v, r in pairs(V, R):
                                        t[l, r, v, p] += dot_bytes(
                                            part(W[q, b, k, v, p], g, w),
                                            X[l, base + o * R + r, b, k, g],
                                        )
                    for p in range(P):
                        for v, r in pairs(V, R):
                            y[r, v, p] += (
                                (whole(t, (r, v, p), L) - shift(Z, total, (q, b, v, p), (base + o * R + r, b), w))
                                * step[base + o * R + r, b]
                            ) * S[q, b, v, p]
                for p in range(P):
                    for v, r in pairs(V, R):
                        if q * w.width + v * P + p < N:
                            Y[base + o * R + r, q * w.width + v * P + p] = y[r, v, p]
        return Y

    return panel_product_of_codes


def with_products(total: Any, X: Any, at: tuple[Any, Any], word: Any, places: tuple[Any, ...], block: Blocks) -> Any:
    """`total` and the products of the codes in a word with a block's elements from `at` on."""
    if not places:
        return total
    return with_products(total, X, at, word, places[:-1], block) + X[element(at, places[-1])] * f32(
        i32(unpacked(word, places[-1], block))
    )


def element(at: tuple[Any, Any], place: tuple[int, int]) -> tuple[Any, Any]:
    """Where the element is that meets the code at a place of the word from `at` on."""
    return at[0], at[1] + place[0] * BYTES + place[1]


def unpacked(word: Any, place: tuple[int, int], block: Blocks) -> Any:
    """The code at a place of a word."""
    return word >> u32(8 * place[1] + block.bits * place[0]) & u32(block.mask)


def part(word: Any, g: int, w: Panels) -> Any:
    """Four codes of a word, a byte each."""
    return word >> (w.blocks.bits * g) & w.mask if w.groups > 1 else word


def place(at: tuple[Any, ...], block: Blocks) -> tuple[Any, ...]:
    """Where the zero point of the block with the scale `at` is."""
    return at if block.zero else (0, 0, 0, 0)


def shift(Z: Any, total: Any, at: tuple[Any, ...], row: tuple[Any, ...], w: Panels) -> Any:
    """What zero points that are no codes take off a sum of products."""
    return Z[at] * whole(total, row, w.digits) if w.blocks.zero == "real" else 0.0


def whole(sums: Any, at: tuple[Any, ...], digits: int) -> Any:
    """Sums of products of each digit as one number."""
    if digits == 1:
        return f32(sums[0, *at])
    high = fma(f32(sums[2, *at]), f32(BASE), f32(sums[1, *at]))
    return fma(high, f32(BASE), f32(sums[0, *at]))


def digit(code: Any, l: int, digits: int) -> Any:
    """Digit `l` of a code in base 256, from -128 to 127; the last one has the sign."""
    if l == digits - 1:
        return carried(code, l)
    return ((carried(code, l) + 128) & 255) - 128


def carried(code: Any, l: int) -> Any:
    """A code without its lowest `l` digits, of which each was rounded to the nearest."""
    return code if l == 0 else (carried(code, l - 1) + 128) >> 8


def worth(top: Any, digits: int) -> Any:
    """What a code of 1 is worth where the largest element of a block is `top`."""
    return top * (1.0 / LARGEST) if digits == 1 else power_below(top) * (1.0 / HEAD)


def in_one(top: Any, digits: int) -> Any:
    """How many codes are worth 1; none where the block is as good as empty."""
    return (LARGEST / top if digits == 1 else HEAD / power_below(top)) if top > LEAST else f32(0.0)


def power_below(x: Any) -> Any:
    """The power of two not above `x` > 0, by rounding alone (Rump, Ogita, Oishi, Accurate floating-point summation,
    SIAM J. Sci. Comput. 31(1), 2008: `ufp`)."""
    return abs(x * PHI - x * PHI * ONE_LESS)


def row_parts(M: Any, R: int) -> tuple[tuple[Any, Any, int], ...]:
    """Groups of `R` rows, then the rest one by one: the first row, how many groups, rows of each."""
    whole = M // R
    parts = ((0, whole, R), (whole * R, M - whole * R, 1)) if R > 1 else ((0, M, 1),)
    return tuple(p for p in parts if not isinstance(p[1], int) or p[1] > 0)


def pairs(vectors: int, rows: int) -> tuple[tuple[int, int], ...]:
    """A vector and a row of a tile."""
    return tuple((v, r) for v in range(vectors) for r in range(rows))
