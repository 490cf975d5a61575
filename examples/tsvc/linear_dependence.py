"""1.1 Linear dependence testing: which iterations touch the same element, subscripts being linear."""

from polyc import dims, f32, inout, op

N, M = dims("N M")


@op
def s000(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] = b[i] + 1.0


@op
def s111(a: inout(f32[N]), b: f32[N]):
    for i in range(1, N, 2):
        a[i] = a[i - 1] + b[i]


@op
def s1111(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N]):
    for i in range(N // 2):
        a[2 * i] = c[i] * b[i] + d[i] * b[i] + c[i] * c[i] + d[i] * b[i] + d[i] * c[i]


@op
def s112(a: inout(f32[N]), b: f32[N]):
    for i in range(N - 2, -1, -1):
        a[i + 1] = a[i] + b[i]


@op
def s1112(a: inout(f32[N]), b: f32[N]):
    for i in range(N - 1, -1, -1):
        a[i] = b[i] + 1.0


@op
def s113(a: inout(f32[N]), b: f32[N]):
    for i in range(1, N):
        a[i] = a[0] + b[i]


@op
def s1113(a: inout(f32[N]), b: f32[N]):
    for i in range(N):
        a[i] = a[N // 2] + b[i]


@op
def s114(aa: inout(f32[M, M]), bb: f32[M, M]):
    for i in range(M):
        for j in range(i):
            aa[i, j] = aa[j, i] + bb[i, j]


@op
def s115(a: inout(f32[N]), aa: f32[M, M]):
    for j in range(M):
        for i in range(j + 1, M):
            a[i] -= aa[j, i] * a[j]


@op
def s1115(aa: inout(f32[M, M]), bb: f32[M, M], cc: f32[M, M]):
    for i in range(M):
        for j in range(M):
            aa[i, j] = aa[i, j] * cc[j, i] + bb[i, j]


@op
def s116(a: inout(f32[N])):
    for i in range(0, N - 5, 5):
        a[i] = a[i + 1] * a[i]
        a[i + 1] = a[i + 2] * a[i + 1]
        a[i + 2] = a[i + 3] * a[i + 2]
        a[i + 3] = a[i + 4] * a[i + 3]
        a[i + 4] = a[i + 5] * a[i + 4]


@op
def s118(a: inout(f32[N]), bb: f32[M, M]):
    for i in range(1, M):
        for j in range(i):
            a[i] += bb[j, i] * a[i - j - 1]


@op
def s119(aa: inout(f32[M, M]), bb: f32[M, M]):
    for i in range(1, M):
        for j in range(1, M):
            aa[i, j] = aa[i - 1, j - 1] + bb[i, j]


@op
def s1119(aa: inout(f32[M, M]), bb: f32[M, M]):
    for i in range(1, M):
        for j in range(M):
            aa[i, j] = aa[i - 1, j] + bb[i, j]
