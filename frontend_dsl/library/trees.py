"""Ensembles of decision trees as tables: walks of a fixed number of steps, without branches.

Place `p` of the tables has a test `x[feature] <= high[p]`, which is false for NaN, and where the two children are:
`child` where it fails, `child + 1` where it holds; `link[p]` is `feature * 2**32 + child`. A leaf is its own child, and
fails its test since its `high` is NaN, so a walk may take more steps than its tree is deep. Place `t` is the root of
tree `t`.

Fifteen rows walk through one tree side by side: while one row waits for memory the others go on. A sweep of rows walks
through one tree before the next one, which stays in the cache for all of them. What is left is a block of fewer rows,
or, of very few, row by row through sixteen trees side by side.
"""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type, return-value"

from typing import Any

from polyc.frontend_dsl import empty, grid, isnan, max, min, op, unroll
from polyc.poly.dtypes import DType, i32, u32, u64
from polyc.poly.records import dataclass

LANES = 16  # walks of one row side by side
ROWS = 15  # rows side by side: sixteen places LLVM takes for one vector, from which each step extracts them one by one
FEW = 9  # rows that are a block of their own where no more are left
SWEEP, LEAST = 16, 4  # blocks of a sweep at most and at least; else as many sweeps as blocks in one, for all threads
INFINITY = float("inf")
CHILD = (1 << 32) - 1
VIEWS = ("plain", "missing", "negative", "negative_missing")
STARTS = {"SUM": 0.0, "MIN": INFINITY, "MAX": -INFINITY}


@dataclass(frozen=True)
class Ensemble:
    """`groups` of `trees` trees each, in `places`; each leaf has `width` weights, which `aggregate` (one of `STARTS`)
    brings together over the trees of a group.

    `views` are the columns that tests read, one after the other, for all features each: the features as they are
    (`plain`), with `-inf` in the place of NaN (`missing`), and with the opposite sign (`negative`, and
    `negative_missing`, where NaN is `-inf` again).
    """

    places: int
    groups: int
    trees: int
    width: int
    aggregate: str = "SUM"
    views: tuple[str, ...] = ("plain",)

    @property
    def blocks(self) -> int:
        """Blocks of as many trees as there are lanes; the last may be of fewer."""
        return -(-self.groups * self.trees // LANES)


def _seen(x: Any, view: str) -> Any:
    """A feature in one of the `VIEWS`."""
    if view == "plain":
        return x
    if view == "missing":
        return -INFINITY if isnan(x) else x
    return -x if view == "negative" else (-INFINITY if isnan(x) else -x)


def make_tree_scores(T: DType, V: DType, rows: Any, features: int, e: Ensemble) -> Any:
    """`Y[n, g * width + c]`: weights `c` of the leaves that row `n` of `X` comes to in the trees of group `g`.

    Features and tests are of type `T`, weights and results of type `V`; weights are brought together in the order of
    the trees. `depth` says how deep each tree is at most, `reach` that of each block of trees. No place, and no
    feature, outside of the tables is read, whatever these hold.
    """
    places, width, padded, results = e.places, e.width, e.blocks * LANES, e.groups * e.width
    last, columns = places - 1, features * len(e.views)
    plain = e.views == ("plain",)
    full = rows // ROWS
    sweep = min(SWEEP, max(LEAST, full // SWEEP)) if isinstance(rows, int) else SWEEP // 2
    rest = rows % ROWS if isinstance(rows, int) else 1
    side_by_side = [(0, full, ROWS)] if not isinstance(rows, int) or full else []
    if isinstance(rows, int) and rest >= FEW:
        side_by_side.append((ROWS * full, 1, rest))
        rest = 0

    def step(X: Any, n: Any, link: Any, high: Any, at: Any) -> Any:
        """The place after `at` on the way of row `n`."""
        return u32(link[min(at, u32(last))] & u64(CHILD)) + (
            u32(1)
            if X[n, min(u32(link[min(at, u32(last))] >> u64(32)), u32(columns - 1))] <= high[min(at, u32(last))]
            else u32(0)
        )

    def joined(y: Any, w: Any) -> Any:
        return y + w if e.aggregate == "SUM" else max(y, w) if e.aggregate == "MAX" else min(y, w)

    @op(reassociate=False)
    def tree_scores(
        X: T[rows, features],
        link: u64[places],
        high: T[places],
        depth: i32[padded],
        reach: i32[padded // LANES],
        weight: V[places, width],
    ) -> V[rows, results]:
        Y = empty((rows, results), V)
        for n, c in grid(rows, results):
            Y[n, c] = V(STARTS[e.aggregate])
        if plain:
            Z = X
        else:
            Z = empty((rows, columns), T)
            for v, view in enumerate(e.views):
                for n, f in grid(rows, features):
                    Z[n, v * features + f] = _seen(X[n, f], view)
        for first, count, lanes in side_by_side:
            for s in range((count + sweep - 1) // sweep):
                for g, k in grid(e.groups, e.trees):
                    at = empty(sweep * lanes, u32)
                    for b in range(min(sweep, count - sweep * s)):
                        for j in range(lanes):
                            at[lanes * b + j] = step(
                                Z, first + lanes * (sweep * s + b) + j, link, high, u32(g * e.trees + k)
                            )
                        for _ in range(depth[g * e.trees + k] - 1):
                            for j in range(lanes):
                                at[lanes * b + j] = step(
                                    Z, first + lanes * (sweep * s + b) + j, link, high, at[lanes * b + j]
                                )
                    for n in range(min(sweep * lanes, lanes * count - lanes * sweep * s)):
                        for c in range(width):
                            Y[first + lanes * sweep * s + n, g * width + c] = joined(
                                Y[first + lanes * sweep * s + n, g * width + c], weight[min(at[n], u32(last)), c]
                            )
        if rest:
            for n in range(ROWS * full, rows):
                leaf = empty((e.blocks, LANES), u32)
                for b in range(e.blocks):
                    at = empty(LANES, u32)
                    for j in unroll(LANES):
                        at[j] = u32(LANES * b + j)
                    for _ in range(reach[b]):
                        for j in unroll(LANES):
                            at[j] = step(Z, n, link, high, at[j])
                    for j in unroll(LANES):
                        leaf[b, j] = at[j]
                for g, k, c in grid(e.groups, e.trees, width):
                    Y[n, g * width + c] = joined(
                        Y[n, g * width + c],
                        weight[min(leaf[(g * e.trees + k) // LANES, (g * e.trees + k) % LANES], u32(last)), c],
                    )
        return Y

    return tree_scores
