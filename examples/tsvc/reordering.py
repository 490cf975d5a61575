"""2.1 to 2.3 Statement reordering, loop distribution, loop interchange."""

from polyc import dims, f32, inout, op

N, M = dims("N M")


@op
def s211(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(1, N - 1):
        a[i] = b[i - 1] + c[i] * d[i]
        b[i] = b[i + 1] - e[i] * d[i]


@op
def s212(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N]):
    for i in range(N - 1):
        a[i] *= c[i]
        b[i] += a[i + 1] * d[i]


@op
def s1213(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N]):
    for i in range(1, N - 1):
        a[i] = b[i - 1] + c[i]
        b[i] = a[i + 1] * d[i]


@op
def s221(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N]):
    for i in range(1, N):
        a[i] += c[i] * d[i]
        b[i] = b[i - 1] + a[i] + d[i]


@op
def s1221(a: f32[N], b: inout(f32[N])):
    for i in range(4, N):
        b[i] = b[i - 4] + a[i]


@op
def s222(a: inout(f32[N]), b: f32[N], c: f32[N], e: inout(f32[N])):
    for i in range(1, N):
        a[i] += b[i] * c[i]
        e[i] = e[i - 1] * e[i - 1]
        a[i] -= b[i] * c[i]


@op
def s231(aa: inout(f32[M, M]), bb: f32[M, M]):
    for i in range(M):
        for j in range(1, M):
            aa[j, i] = aa[j - 1, i] + bb[j, i]


@op
def s232(aa: inout(f32[M, M]), bb: f32[M, M]):
    for j in range(1, M):
        for i in range(1, j + 1):
            aa[j, i] = aa[j, i - 1] * aa[j, i - 1] + bb[j, i]


@op
def s1232(aa: inout(f32[M, M]), bb: f32[M, M], cc: f32[M, M]):
    for j in range(M):
        for i in range(j, M):
            aa[i, j] = bb[i, j] + cc[i, j]


@op
def s233(aa: inout(f32[M, M]), bb: inout(f32[M, M]), cc: f32[M, M]):
    for i in range(1, M):
        for j in range(1, M):
            aa[j, i] = aa[j - 1, i] + cc[j, i]
        for j in range(1, M):
            bb[j, i] = bb[j, i - 1] + cc[j, i]


@op
def s2233(aa: inout(f32[M, M]), bb: inout(f32[M, M]), cc: f32[M, M]):
    for i in range(1, M):
        for j in range(1, M):
            aa[j, i] = aa[j - 1, i] + cc[j, i]
        for j in range(1, M):
            bb[i, j] = bb[i - 1, j] + cc[i, j]


@op
def s235(a: inout(f32[N]), b: f32[N], c: f32[N], aa: inout(f32[M, M]), bb: f32[M, M]):
    for i in range(M):
        a[i] += b[i] * c[i]
        for j in range(1, M):
            aa[j, i] = aa[j - 1, i] + bb[j, i] * a[i]
