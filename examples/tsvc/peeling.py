"""2.8 to 2.12 Crossing thresholds, peeling, diagonals, wavefronts."""

from polyc import dims, f32, f64, inout, op

N, M = dims("N M")


@op
def s281(a: inout(f32[N]), b: inout(f32[N]), c: f32[N]):
    for i in range(N):
        x = a[N - i - 1] + b[i] * c[i]
        a[i] = x - 1.0
        b[i] = x


@op
def s1281(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(N):
        x = b[i] * c[i] + a[i] * d[i] + e[i]
        a[i] = x - 1.0
        b[i] = x


@op
def s291(a: inout(f32[N]), b: f32[N]):
    im1 = N - 1
    for i in range(N):
        a[i] = (b[i] + b[im1]) * 0.5
        im1 = i


@op
def s292(a: inout(f32[N]), b: f32[N]):
    im1 = N - 1
    im2 = N - 2
    for i in range(N):
        a[i] = (b[i] + b[im1] + b[im2]) * 0.333
        im2 = im1
        im1 = i


@op
def s293(a: inout(f32[N])):
    for i in range(N):
        a[i] = a[0]


@op
def s2101(aa: inout(f32[M, M]), bb: f32[M, M], cc: f32[M, M]):
    for i in range(M):
        aa[i, i] += bb[i, i] * cc[i, i]


@op
def s2102(aa: inout(f32[M, M])):
    for i in range(M):
        for j in range(M):
            aa[j, i] = 0.0
        aa[i, i] = 1.0


@op
def s2111(aa: inout(f32[M, M])):
    """The quotient is a double's, as in C."""
    for j in range(1, M):
        for i in range(1, M):
            aa[j, i] = f32(f64(aa[j, i - 1] + aa[j - 1, i]) / 1.9)
