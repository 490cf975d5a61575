"""Products with a matrix of which panels of columns leave out rows: blocks of zeros cost nothing."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, op
from polyc.poly.dtypes import f32, i32


def make_kept_rows_matmul(rows: int, inner: int, panels: int, kept: int, width: int) -> Any:
    """`Y[i, j, c]` sums `X[i, at[j, p]] V[j, p, c]` over the `kept` rows of panel `j`: `at` says which rows of the
    matrix these are, `V` has them."""

    @op
    def kept_rows_matmul(
        X: f32[rows, inner], at: i32[panels, kept], V: f32[panels, kept, width]
    ) -> f32[rows, panels, width]:
        Y = empty((rows, panels, width), f32)
        for i, j, c in grid(rows, panels, width):
            Y[i, j, c] = 0.0
            for p in range(kept):
                Y[i, j, c] += X[i, at[j, p]] * V[j, p, c]
        return Y

    return kept_rows_matmul
