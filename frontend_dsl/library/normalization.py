"""Softmax and the normalisations."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from typing import Any

from polyc.frontend_dsl import abs, empty, exp, grid, log, max, op, pow, sqrt
from polyc.frontend_dsl.library.subscripts import pick
from polyc.poly.dtypes import DType

Shape = tuple[int, ...]


def make_softmax(T: DType, outer: int, n: int, inner: int, logarithm: bool = False) -> Any:
    """`exp(x) / sum(exp(x))` (or its logarithm) along the middle axis of `X[outer, n, inner]`."""

    @op
    def softmax(X: T[outer, n, inner]) -> T[outer, n, inner]:
        Y = empty((outer, n, inner), T)
        for o, i in grid(outer, inner):
            top = T(float("-inf"))
            for k in range(n):
                top = max(top, X[o, k, i])
            total = T(0)
            for k in range(n):
                Y[o, k, i] = exp(X[o, k, i] - top)
                total += Y[o, k, i]
            inverse = 1 / total
            for k in range(n):
                Y[o, k, i] = Y[o, k, i] * inverse
        return Y

    @op
    def log_softmax(X: T[outer, n, inner]) -> T[outer, n, inner]:
        Y = empty((outer, n, inner), T)
        for o, i in grid(outer, inner):
            top = T(float("-inf"))
            for k in range(n):
                top = max(top, X[o, k, i])
            total = T(0)
            for k in range(n):
                total += exp(X[o, k, i] - top)
            logarithm_of_total = log(total)
            for k in range(n):
                Y[o, k, i] = X[o, k, i] - top - logarithm_of_total
        return Y

    return log_softmax if logarithm else softmax


def make_softmax_rows(T: DType, rows: Shape, n: int) -> Any:
    """Softmax along the last axis of `X[*rows, n]`."""

    @op
    def softmax_rows(X: T[(*rows, n)]) -> T[(*rows, n)]:
        Y = empty((*rows, n), T)
        for r in grid(*rows):
            top = T(float("-inf"))
            for k in range(n):
                top = max(top, X[*r, k])
            total = T(0)
            for k in range(n):
                Y[*r, k] = exp(X[*r, k] - top)
                total += Y[*r, k]
            inverse = 1 / total
            for k in range(n):
                Y[*r, k] = Y[*r, k] * inverse
        return Y

    return softmax_rows


def make_layer_norm(T: DType, rows: int, n: int, epsilon: float, bias: bool) -> Any:
    """Each row to mean 0 and variance 1, then scaled by `S` and shifted by `B`."""

    @op
    def layer_norm(X: T[rows, n], S: T[n], B: T[n]) -> T[rows, n]:
        Y = empty((rows, n), T)
        for r in range(rows):
            mean = T(0)
            for k in range(n):
                mean += X[r, k]
            mean /= n
            variance = T(0)
            for k in range(n):
                variance += (X[r, k] - mean) * (X[r, k] - mean)
            inverse = 1 / sqrt(variance / n + epsilon)
            for k in range(n):
                Y[r, k] = (X[r, k] - mean) * inverse * S[k] + B[k]
        return Y

    @op
    def layer_norm_nobias(X: T[rows, n], S: T[n]) -> T[rows, n]:
        Y = empty((rows, n), T)
        for r in range(rows):
            mean = T(0)
            for k in range(n):
                mean += X[r, k]
            mean /= n
            variance = T(0)
            for k in range(n):
                variance += (X[r, k] - mean) * (X[r, k] - mean)
            inverse = 1 / sqrt(variance / n + epsilon)
            for k in range(n):
                Y[r, k] = (X[r, k] - mean) * inverse * S[k]
        return Y

    return layer_norm if bias else layer_norm_nobias


def make_rms_norm(T: DType, rows: int, n: int, epsilon: float) -> Any:
    """Each row divided by its root mean square, then scaled by `S`."""

    @op
    def rms_norm(X: T[rows, n], S: T[n]) -> T[rows, n]:
        Y = empty((rows, n), T)
        for r in range(rows):
            total = T(0)
            for k in range(n):
                total += X[r, k] * X[r, k]
            inverse = 1 / sqrt(total / n + epsilon)
            for k in range(n):
                Y[r, k] = X[r, k] * inverse * S[k]
        return Y

    return rms_norm


def make_group_norm(
    T: DType, batch: int, groups: int, channels: int, pixels: int, epsilon: float, per_channel: bool
) -> Any:
    """Mean 0 and variance 1 over each group of `channels` x `pixels`; instance norm is groups of one channel.

    `S` and `B` are per channel, `[groups, channels]`, or one value for each group.
    """
    N, G, C, P = batch, groups, channels, pixels
    count = C * P
    scales = (G, C) if per_channel else (G, 1)

    @op
    def group_norm(X: T[N, G, C, P], S: T[scales], B: T[scales]) -> T[N, G, C, P]:
        Y = empty((N, G, C, P), T)
        for n, g in grid(N, G):
            mean = T(0)
            for c, p in grid(C, P):
                mean += X[n, g, c, p]
            mean /= count
            variance = T(0)
            for c, p in grid(C, P):
                variance += (X[n, g, c, p] - mean) * (X[n, g, c, p] - mean)
            inverse = 1 / sqrt(variance / count + epsilon)
            for c, p in grid(C, P):
                s = c if per_channel else 0
                Y[n, g, c, p] = (X[n, g, c, p] - mean) * inverse * S[g, s] + B[g, s]
        return Y

    return group_norm


def make_lrn(
    T: DType, batch: int, channels: int, pixels: int, size: int, alpha: float, beta: float, bias: float
) -> Any:
    """`x / (bias + alpha/size * sum of squares of `size` neighbouring channels) ** beta`."""
    N, C, P = batch, channels, pixels
    before = (size - 1) // 2
    factor = alpha / size

    @op
    def lrn(X: T[N, C, P]) -> T[N, C, P]:
        S = empty((N, C, P), T)
        Y = empty((N, C, P), T)
        for n, c, p in grid(N, C, P):
            S[n, c, p] = 0
            for k in range(size):
                if before <= c + k < C + before:
                    S[n, c, p] += X[n, c + k - before, p] * X[n, c + k - before, p]
            Y[n, c, p] = X[n, c, p] / pow(bias + factor * S[n, c, p], beta)
        return Y

    return lrn


def make_lp_norm(T: DType, outer: int, n: int, inner: int, power: int) -> Any:
    """Divide by the 1- or 2-norm along the middle axis; a zero norm leaves zeros."""

    def term(x: Any) -> Any:
        return abs(x) if power == 1 else x * x

    def finish(total: Any) -> Any:
        return total if power == 1 else sqrt(total)

    @op
    def lp_norm(X: T[outer, n, inner]) -> T[outer, n, inner]:
        Y = empty((outer, n, inner), T)
        for o, i in grid(outer, inner):
            total = T(0)
            for k in range(n):
                total += term(X[o, k, i])
            norm = finish(total)
            for k in range(n):
                Y[o, k, i] = X[o, k, i] / norm if norm != 0 else T(0)
        return Y

    return lp_norm


def make_hardmax(T: DType, outer: int, n: int, inner: int) -> Any:
    """1 at the first maximum along the middle axis, 0 elsewhere."""

    @op
    def hardmax(X: T[outer, n, inner]) -> T[outer, n, inner]:
        Y = empty((outer, n, inner), T)
        for o, i in grid(outer, inner):
            top = T(float("-inf"))
            for k in range(n):
                top = max(top, X[o, k, i])
            free = T(1)
            for k in range(n):
                Y[o, k, i] = free if X[o, k, i] == top else T(0)
                free = T(0) if X[o, k, i] == top else free
        return Y

    return hardmax


def make_mean_variance(T: DType, order: Shape, shape: Shape, kept: int) -> Any:
    """Mean 0 and variance 1 over the last `len(order) - kept` of the axes listed in `order`."""
    outer, inner = tuple(shape[d] for d in order[:kept]), tuple(shape[d] for d in order[kept:])
    place = tuple(order.index(d) for d in range(len(order)))
    count = 1
    for n in inner:
        count *= n

    @op
    def mean_variance(X: T[shape]) -> T[shape]:
        Y = empty(shape, T)
        for o in grid(*outer):
            mean = T(0)
            for k in grid(*inner):
                mean += X[pick((*o, *k), place)]
            mean /= count
            variance = T(0)
            for k in grid(*inner):
                variance += (X[pick((*o, *k), place)] - mean) * (X[pick((*o, *k), place)] - mean)
            deviation = sqrt(variance / count)
            for k in grid(*inner):
                Y[pick((*o, *k), place)] = (X[pick((*o, *k), place)] - mean) / (deviation + 1e-9)
        return Y

    return mean_variance
