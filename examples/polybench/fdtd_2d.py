"""fdtd-2d: finite difference time domain method for Maxwell's equations."""

from examples.polybench.data import uniform
from polyc import dims, f64, inout, op

TMAX, NX, NY = dims("TMAX NX NY")
SIZES = {
    "MINI": {"TMAX": 20, "NX": 20, "NY": 30},
    "SMALL": {"TMAX": 40, "NX": 60, "NY": 80},
    "MEDIUM": {"TMAX": 100, "NX": 200, "NY": 240},
    "LARGE": {"TMAX": 500, "NX": 1000, "NY": 1200},
}


@op
def fdtd_2d(ex: inout(f64[NX, NY]), ey: inout(f64[NX, NY]), hz: inout(f64[NX, NY]), fict: f64[TMAX]):
    for t in range(TMAX):
        for j in range(NY):
            ey[0, j] = fict[t]
        for i in range(1, NX):
            for j in range(NY):
                ey[i, j] = ey[i, j] - 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in range(NX):
            for j in range(1, NY):
                ex[i, j] = ex[i, j] - 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in range(NX - 1):
            for j in range(NY - 1):
                hz[i, j] = hz[i, j] - 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


def inputs(size, rng):
    nx, ny = size["NX"], size["NY"]
    return {name: uniform(rng, nx, ny) for name in ("ex", "ey", "hz")} | {"fict": uniform(rng, size["TMAX"])}


def reference(ex, ey, hz, fict):
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for f in fict:
        ey[0] = f
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz
