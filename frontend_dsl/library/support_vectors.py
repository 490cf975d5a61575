"""What support vector machines need beside products: squared distances, and probabilities from those of pairs."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import abs, empty, grid, max, min, op, sqrt
from polyc.poly.dtypes import DType

MOST_ROUNDS = 100  # of the iteration that couples probabilities
CLOSE = 0.005  # the error, times the number of classes, with which it ends
LEAST = 1e-7  # probability of a class of a pair


def make_distances(T: DType, rows: Any, others: Any, features: Any, root: bool) -> Any:
    """`Y[i, j] = sum((X[i, :] - V[:, j]) ** 2)`, or its `root`: distances of rows to the columns of a matrix."""

    @op
    def distances(X: T[rows, features], V: T[features, others]) -> T[rows, others]:
        Y = empty((rows, others), T)
        for i, j in grid(rows, others):
            Y[i, j] = T(0)
            for f in range(features):
                Y[i, j] += (X[i, f] - V[f, j]) * (X[i, f] - V[f, j])
        if root:
            for i, j in grid(rows, others):
                Y[i, j] = sqrt(Y[i, j])
        return Y

    return distances


def make_coupled(T: DType, rows: Any, classes: int) -> Any:
    """Probabilities of classes, `P[n, :]`, from those of pairs: `R[n, i, j]` is that of `i` where it is `i` or `j`.

    They minimise `sum((R[j, i] P[i] - R[i, j] P[j]) ** 2)` (Wu, Lin and Weng, "Probability estimates for multi-class
    classification by pairwise coupling", JMLR 5, 2004, algorithm 2), by as many rounds as LIBSVM takes.
    """
    close = CLOSE / classes

    def inside(r: Any) -> Any:
        return min(max(r, T(LEAST)), T(1 - LEAST))

    @op(reassociate=False)
    def coupled(R: T[rows, classes, classes]) -> T[rows, classes]:
        P = empty((rows, classes), T)
        for n in range(rows):
            Q = empty((classes, classes), T)
            slope = empty(classes, T)
            for i in range(classes):
                P[n, i] = T(1 / classes)
                Q[i, i] = T(0)
                for j in range(classes):
                    if j != i:
                        Q[i, i] += inside(R[n, j, i]) * inside(R[n, j, i])
                        Q[i, j] = -inside(R[n, j, i]) * inside(R[n, i, j])
            for _ in range(MOST_ROUNDS):
                mean = T(0)
                for i in range(classes):
                    slope[i] = T(0)
                    for j in range(classes):
                        slope[i] += Q[i, j] * P[n, j]
                    mean += P[n, i] * slope[i]
                worst = T(0)
                for i in range(classes):
                    worst = max(worst, abs(slope[i] - mean))
                if worst < T(close):
                    break
                for i in range(classes):
                    step = (mean - slope[i]) / Q[i, i]
                    P[n, i] += step
                    mean = (mean + step * (step * Q[i, i] + T(2) * slope[i])) / (T(1) + step) / (T(1) + step)
                    for j in range(classes):
                        slope[j] = (slope[j] + step * Q[i, j]) / (T(1) + step)
                        P[n, j] = P[n, j] / (T(1) + step)
        return P

    return coupled
