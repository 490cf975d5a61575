"""2.5 and 2.6 Scalar and array expansion, scalar renaming."""

from polyc import dims, f32, inout, op

N, M = dims("N M")


@op
def s251(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N]):
    for i in range(N):
        s = b[i] + c[i] * d[i]
        a[i] = s * s


@op
def s1251(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(N):
        s = b[i] + c[i]
        b[i] = a[i] + d[i]
        a[i] = s * e[i]


@op
def s2251(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    s = f32(0.0)
    for i in range(N):
        a[i] = s * e[i]
        s = b[i] + c[i]
        b[i] = a[i] + d[i]


@op
def s3251(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: inout(f32[N]), e: f32[N]):
    for i in range(N - 1):
        a[i + 1] = b[i] + c[i]
        b[i] = c[i] * e[i]
        d[i] = a[i] * e[i]


@op
def s252(a: inout(f32[N]), b: f32[N], c: f32[N]):
    t = f32(0.0)
    for i in range(N):
        s = b[i] * c[i]
        a[i] = s + t
        t = s


@op
def s253(a: inout(f32[N]), b: f32[N], c: inout(f32[N]), d: f32[N]):
    for i in range(N):
        if a[i] > b[i]:
            s = a[i] - b[i] * d[i]
            c[i] += s
            a[i] = s


@op
def s254(a: inout(f32[N]), b: f32[N]):
    x = b[N - 1]
    for i in range(N):
        a[i] = (b[i] + x) * 0.5
        x = b[i]


@op
def s255(a: inout(f32[N]), b: f32[N]):
    x = b[N - 1]
    y = b[N - 2]
    for i in range(N):
        a[i] = (b[i] + x + y) * 0.333
        y = x
        x = b[i]


@op
def s256(a: inout(f32[N]), d: f32[N], aa: inout(f32[M, M]), bb: f32[M, M]):
    for i in range(M):
        for j in range(1, M):
            a[j] = 1.0 - a[j - 1]
            aa[j, i] = a[j] + bb[j, i] * d[j]


@op
def s257(a: inout(f32[N]), aa: inout(f32[M, M]), bb: f32[M, M]):
    for i in range(1, M):
        for j in range(M):
            a[i] = aa[j, i] - a[i - 1]
            aa[j, i] = a[i] + bb[j, i]


@op
def s258(a: f32[N], b: inout(f32[N]), c: f32[N], d: f32[N], e: inout(f32[N]), aa: f32[M, M]):
    s = f32(0.0)
    for i in range(M):
        if a[i] > 0.0:
            s = d[i] * d[i]
        b[i] = s * c[i] + d[i]
        e[i] = (s + 1.0) * aa[0, i]


@op
def s261(a: inout(f32[N]), b: f32[N], c: inout(f32[N]), d: f32[N]):
    for i in range(1, N):
        t = a[i] + b[i]
        a[i] = t + c[i - 1]
        t = c[i] * d[i]
        c[i] = t
