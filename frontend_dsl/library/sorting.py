"""The k largest or smallest elements along an axis."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from frontend_dsl import empty, grid, min, op
from poly.dtypes import DType, i64


def make_top_k(T: DType, outer: int, n: int, inner: int, k: int, largest: bool) -> Any:
    """Values and positions of the `k` extreme elements of `X[o,:,i]`, sorted; of equal ones the first counts more.

    Every element in turn sinks into the sorted list of those before it, as in insertion sort.
    """

    def better(a: Any, i: Any, b: Any, j: Any) -> Any:
        """Whether `a` from place `i` comes before `b` from place `j`."""
        return (a > b if largest else a < b) or (a == b and i < j)

    @op
    def top_k(X: T[outer, n, inner]):  # type: ignore[no-untyped-def]
        V = empty((outer, k, inner), T)
        P = empty((outer, k, inner), i64)
        for o, i in grid(outer, inner):
            for j in range(n):
                value = X[o, j, i]
                place = i64(j)
                for r in range(min(j, k)):
                    held = V[o, r, i]
                    which = P[o, r, i]
                    wins = better(value, place, held, which)
                    V[o, r, i] = value if wins else held
                    P[o, r, i] = place if wins else which
                    value = held if wins else value
                    place = which if wins else place
                if j < k:
                    V[o, j, i] = value
                    P[o, j, i] = place
        return V, P

    return top_k
