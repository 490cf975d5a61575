"""2.7 Control flow: conditions, with `if` and `else` for TSVC's jumps."""

from polyc import dims, f32, inout, op

N, M = dims("N M")


@op
def s271(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        if b[i] > 0.0:
            a[i] += b[i] * c[i]


@op
def s272(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N], t: f32):
    for i in range(N):
        if e[i] >= t:
            a[i] += c[i] * d[i]
            b[i] += c[i] * c[i]


@op
def s273(a: inout(f32[N]), b: inout(f32[N]), c: inout(f32[N]), d: f32[N], e: f32[N]):
    for i in range(N):
        a[i] += d[i] * e[i]
        if a[i] < 0.0:
            b[i] += d[i] * e[i]
        c[i] += a[i] * d[i]


@op
def s274(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(N):
        a[i] = c[i] + e[i] * d[i]
        if a[i] > 0.0:
            b[i] = a[i] + b[i]
        else:
            a[i] = d[i] * e[i]


@op
def s275(aa: inout(f32[M, M]), bb: f32[M, M], cc: f32[M, M]):
    for i in range(M):
        if aa[0, i] > 0.0:
            for j in range(1, M):
                aa[j, i] = aa[j - 1, i] + bb[j, i] * cc[j, i]


@op
def s2275(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], aa: inout(f32[M, M]), bb: f32[M, M], cc: f32[M, M]):
    for i in range(M):
        for j in range(M):
            aa[j, i] = aa[j, i] + bb[j, i] * cc[j, i]
        a[i] = b[i] + c[i] * d[i]


@op
def s276(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N]):
    mid = N // 2
    for i in range(N):
        if i + 1 < mid:
            a[i] += b[i] * c[i]
        else:
            a[i] += b[i] * d[i]


@op
def s277(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(N - 1):
        if a[i] < 0.0:
            if b[i] < 0.0:
                a[i] += c[i] * d[i]
            b[i + 1] = c[i] + d[i] * e[i]


@op
def s278(a: inout(f32[N]), b: inout(f32[N]), c: inout(f32[N]), d: f32[N], e: f32[N]):
    for i in range(N):
        if a[i] > 0.0:
            c[i] = -c[i] + d[i] * e[i]
        else:
            b[i] = -b[i] + d[i] * e[i]
        a[i] = b[i] + c[i] * d[i]


@op
def s279(a: inout(f32[N]), b: inout(f32[N]), c: inout(f32[N]), d: f32[N], e: f32[N]):
    for i in range(N):
        if a[i] > 0.0:
            c[i] = -c[i] + e[i] * e[i]
        else:
            b[i] = -b[i] + d[i] * d[i]
            if b[i] > a[i]:
                c[i] += d[i] * e[i]
        a[i] = b[i] + c[i] * d[i]


@op
def s1279(a: f32[N], b: f32[N], c: inout(f32[N]), d: f32[N], e: f32[N]):
    for i in range(N):
        if a[i] < 0.0:
            if b[i] > a[i]:
                c[i] += d[i] * e[i]


@op
def s2710(a: inout(f32[N]), b: inout(f32[N]), c: inout(f32[N]), d: f32[N], e: f32[N], x: f32):
    for i in range(N):
        if a[i] > b[i]:
            a[i] += b[i] * d[i]
            if N > 10:
                c[i] += d[i] * d[i]
            else:
                c[i] = d[i] * e[i] + 1.0
        else:
            b[i] = a[i] + e[i] * e[i]
            if x > 0.0:
                c[i] = a[i] + d[i] * d[i]
            else:
                c[i] += e[i] * e[i]


@op
def s2711(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        if b[i] != 0.0:
            a[i] += b[i] * c[i]


@op
def s2712(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        if a[i] > b[i]:
            a[i] += b[i] * c[i]
