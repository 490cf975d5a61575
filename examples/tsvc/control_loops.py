"""5.1 Control loops: simple operations on vectors."""

from polyc import dims, empty, f32, i32, inout, op

N, M = dims("N M")


@op
def va(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] = b[i]


@op
def vag(a: inout(f32[N]), b: f32[N], ip: i32[N]):
    for i in range(N):
        a[i] = b[ip[i]]


@op
def vas(a: inout(f32[N]), b: f32[N], ip: i32[N]):
    for i in range(N):
        a[ip[i]] = b[i]


@op
def vif(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        if b[i] > 0.0:
            a[i] = b[i]


@op
def vpv(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] += b[i]


@op
def vtv(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] *= b[i]


@op
def vpvtv(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        a[i] += b[i] * c[i]


@op
def vpvts(a: inout(f32[N]), b: f32[N], s: f32):
    for i in range(N):
        a[i] += b[i] * s


@op
def vpvpv(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        a[i] += b[i] + c[i]


@op
def vtvtv(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        a[i] = a[i] * b[i] * c[i]


@op
def vsumr(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    total = f32(0.0)
    for i in range(N):
        total += a[i]
    result[()] = total
    return result


@op
def vdotr(a: f32[N], b: f32[N]) -> f32[()]:
    result = empty((), f32)
    dot = f32(0.0)
    for i in range(N):
        dot += a[i] * b[i]
    result[()] = dot
    return result


@op
def vbor(a: f32[N], b: f32[N], c: f32[N], d: f32[N], e: f32[N], aa: f32[M, M], x: inout(f32[N])):
    for i in range(M):
        a1 = a[i]
        b1 = b[i]
        c1 = c[i]
        d1 = d[i]
        e1 = e[i]
        f1 = aa[0, i]
        a1 = (
            a1 * b1 * c1
            + a1 * b1 * d1
            + a1 * b1 * e1
            + a1 * b1 * f1
            + a1 * c1 * d1
            + a1 * c1 * e1
            + a1 * c1 * f1
            + a1 * d1 * e1
            + a1 * d1 * f1
            + a1 * e1 * f1
        )
        b1 = b1 * c1 * d1 + b1 * c1 * e1 + b1 * c1 * f1 + b1 * d1 * e1 + b1 * d1 * f1 + b1 * e1 * f1
        c1 = c1 * d1 * e1 + c1 * d1 * f1 + c1 * e1 * f1
        d1 = d1 * e1 * f1
        x[i] = a1 * b1 * c1 * d1
