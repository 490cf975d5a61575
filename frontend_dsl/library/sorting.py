"""The k largest or smallest elements along an axis."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import empty, grid, max, min, op
from polyc.poly.dtypes import DType, i64

LIST = 16  # elements of a sorted list in which insertion is no slower than a heap


def make_top_k(T: DType, outer: int, n: int, inner: int, k: int, largest: bool) -> Any:
    """Values and positions of the `k` extreme elements of `X[o,:,i]`, sorted; of equal ones the first counts more."""
    known = isinstance(k, int)  # a heap's depth is needed as a number
    return (_heap if known and k > LIST else _insertion)(T, outer, n, inner, k, largest)


def _insertion(T: DType, outer: int, n: int, inner: int, k: int, largest: bool) -> Any:
    """Every element in turn sinks into the sorted list of those before it, as in insertion sort; one that is worse
    than all of a full list is only compared with the last."""

    def beats(a: Any, b: Any) -> Any:
        """Whether `a` comes before `b`, which stands at an earlier place."""
        return a > b if largest else a < b

    def better(a: Any, i: Any, b: Any, j: Any) -> Any:
        """Whether `a` from place `i` comes before `b` from place `j`."""
        return (a > b if largest else a < b) or (a == b and i < j)

    @op
    def top_k(X: T[outer, n, inner]):  # type: ignore[no-untyped-def]
        V = empty((outer, k, inner), T)
        P = empty((outer, k, inner), i64)
        for o, i in grid(outer, inner):
            for j in range(k):
                value = X[o, j, i]
                place = i64(j)
                for r in range(j):
                    held = V[o, r, i]
                    which = P[o, r, i]
                    wins = better(value, place, held, which)
                    V[o, r, i] = value if wins else held
                    P[o, r, i] = place if wins else which
                    value = held if wins else value
                    place = which if wins else place
                V[o, j, i] = value
                P[o, j, i] = place
            for j in range(k, n):
                value = X[o, j, i]
                place = i64(j)
                sinks = i64(k) if beats(value, V[o, k - 1, i]) else i64(0)
                for r in range(sinks):
                    held = V[o, r, i]
                    which = P[o, r, i]
                    wins = better(value, place, held, which)
                    V[o, r, i] = value if wins else held
                    P[o, r, i] = place if wins else which
                    value = held if wins else value
                    place = which if wins else place
        return V, P

    return top_k


def _heap(T: DType, outer: int, n: int, inner: int, k: int, largest: bool) -> Any:
    """A heap of the best so far with the worst of them at its root (Williams, "Algorithm 232: Heapsort", CACM 1964):
    an element that is better takes the root's place and sinks. At the end the heap is sorted in place.

    Sinking takes a fixed number of steps: after the last exchange they write the element where it is.
    """
    levels = k.bit_length()

    def beats(a: Any, b: Any) -> Any:
        """Whether `a` comes before `b`, which stands at an earlier place."""
        return a > b if largest else a < b

    def worse(a: Any, i: Any, b: Any, j: Any) -> Any:
        """Whether `a` from place `i` comes after `b` from place `j`."""
        return (a < b if largest else a > b) or (a == b and i > j)

    @op
    def top_k(X: T[outer, n, inner]):  # type: ignore[no-untyped-def]
        V = empty((outer, k, inner), T)
        P = empty((outer, k, inner), i64)
        for o, i in grid(outer, inner):
            for j in range(k):
                V[o, j, i] = X[o, j, i]
                P[o, j, i] = i64(j)
            # Three times the same: sinking from `at` in the first `size` elements.
            for t in range(k // 2):
                at = i64(k // 2 - 1 - t)
                value = V[o, at, i]
                place = P[o, at, i]
                for _ in range(levels):
                    left = min(2 * at + 1, i64(k - 1))
                    right = min(2 * at + 2, i64(k - 1))
                    child = right if worse(V[o, right, i], P[o, right, i], V[o, left, i], P[o, left, i]) else left
                    v = V[o, child, i]
                    p = P[o, child, i]
                    sinks = 2 * at + 1 < k and worse(v, p, value, place)
                    V[o, at, i] = v if sinks else value
                    P[o, at, i] = p if sinks else place
                    at = child if sinks else at
            for j in range(k, n):
                value = X[o, j, i]
                place = i64(j)
                at = i64(0)
                steps = i64(levels) if beats(value, V[o, 0, i]) else i64(0)
                for _ in range(steps):
                    left = min(2 * at + 1, i64(k - 1))
                    right = min(2 * at + 2, i64(k - 1))
                    child = right if worse(V[o, right, i], P[o, right, i], V[o, left, i], P[o, left, i]) else left
                    v = V[o, child, i]
                    p = P[o, child, i]
                    sinks = 2 * at + 1 < k and worse(v, p, value, place)
                    V[o, at, i] = v if sinks else value
                    P[o, at, i] = p if sinks else place
                    at = child if sinks else at
            for t in range(k - 1):
                size = i64(k - 1 - t)
                value = V[o, k - 1 - t, i]
                place = P[o, k - 1 - t, i]
                V[o, k - 1 - t, i] = V[o, 0, i]
                P[o, k - 1 - t, i] = P[o, 0, i]
                at = i64(0)
                for _ in range(levels):
                    left = max(min(2 * at + 1, size - 1), i64(0))
                    right = max(min(2 * at + 2, size - 1), i64(0))
                    child = right if worse(V[o, right, i], P[o, right, i], V[o, left, i], P[o, left, i]) else left
                    v = V[o, child, i]
                    p = P[o, child, i]
                    sinks = 2 * at + 1 < size and worse(v, p, value, place)
                    V[o, at, i] = v if sinks else value
                    P[o, at, i] = p if sinks else place
                    at = child if sinks else at
        return V, P

    return top_k
