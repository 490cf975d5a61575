"""deriche: recursive edge detection filter (Deriche), in two passes over rows and columns."""

import numpy as np

from polyc import dims, empty, exp, f64, op

W, H = dims("W H")
SIZES = {
    "MINI": {"W": 64, "H": 64},
    "SMALL": {"W": 192, "H": 128},
    "MEDIUM": {"W": 720, "H": 480},
    "LARGE": {"W": 4096, "H": 2160},
}


def coefficients(alpha):
    """The filter's (a1, a2, ...): plain arithmetic on a compile-time constant."""
    k = (1.0 - exp(-alpha)) * (1.0 - exp(-alpha)) / (1.0 + 2.0 * alpha * exp(-alpha) - exp(2.0 * alpha))
    a2 = k * exp(-alpha) * (alpha - 1.0)
    a3 = k * exp(-alpha) * (alpha + 1.0)
    a4 = -k * exp(-2.0 * alpha)
    return k, a2, a3, a4, 2.0 ** (-alpha), -exp(-2.0 * alpha)


@op
def deriche(imgIn: f64[W, H], *, alpha=0.25) -> f64[W, H]:
    y1 = empty((W, H), f64)
    y2 = empty((W, H), f64)
    imgOut = empty((W, H), f64)
    a1, a2, a3, a4, b1, b2 = coefficients(alpha)
    for i in range(W):
        ym1 = 0.0
        ym2 = 0.0
        xm1 = 0.0
        for j in range(H):
            y1[i, j] = a1 * imgIn[i, j] + a2 * xm1 + b1 * ym1 + b2 * ym2
            xm1 = imgIn[i, j]
            ym2 = ym1
            ym1 = y1[i, j]
    for i in range(W):
        yp1 = 0.0
        yp2 = 0.0
        xp1 = 0.0
        xp2 = 0.0
        for j in range(H - 1, -1, -1):
            y2[i, j] = a3 * xp1 + a4 * xp2 + b1 * yp1 + b2 * yp2
            xp2 = xp1
            xp1 = imgIn[i, j]
            yp2 = yp1
            yp1 = y2[i, j]
    for i in range(W):
        for j in range(H):
            imgOut[i, j] = y1[i, j] + y2[i, j]
    for j in range(H):
        tm1 = 0.0
        ym1 = 0.0
        ym2 = 0.0
        for i in range(W):
            y1[i, j] = a1 * imgOut[i, j] + a2 * tm1 + b1 * ym1 + b2 * ym2
            tm1 = imgOut[i, j]
            ym2 = ym1
            ym1 = y1[i, j]
    for j in range(H):
        tp1 = 0.0
        tp2 = 0.0
        yp1 = 0.0
        yp2 = 0.0
        for i in range(W - 1, -1, -1):
            y2[i, j] = a3 * tp1 + a4 * tp2 + b1 * yp1 + b2 * yp2
            tp2 = tp1
            tp1 = imgOut[i, j]
            yp2 = yp1
            yp1 = y2[i, j]
    for i in range(W):
        for j in range(H):
            imgOut[i, j] = y1[i, j] + y2[i, j]
    return imgOut


def inputs(size, rng):
    return {"imgIn": rng.uniform(0, 1, (size["W"], size["H"]))}


def reference(imgIn):
    a1, a2, a3, a4, b1, b2 = coefficients(0.25)

    def along_rows(x):
        y1, y2 = np.zeros_like(x), np.zeros_like(x)
        zero = np.zeros(len(x))
        n = x.shape[1]

        def at(a, j):
            return a[:, j] if 0 <= j < n else zero

        for j in range(n):
            y1[:, j] = a1 * x[:, j] + a2 * at(x, j - 1) + b1 * at(y1, j - 1) + b2 * at(y1, j - 2)
        for j in reversed(range(n)):
            y2[:, j] = a3 * at(x, j + 1) + a4 * at(x, j + 2) + b1 * at(y2, j + 1) + b2 * at(y2, j + 2)
        return y1 + y2

    return (along_rows(along_rows(imgIn).T).T,)
