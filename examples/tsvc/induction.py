"""1.2 Induction variables: subscripts that are counted in scalars."""

from polyc import dims, f32, inout, op

N, M, L = dims("N M L")


@op
def s121(a: inout(f32[N]), b: f32[N]):
    for i in range(N - 1):
        j = i + 1
        a[i] = a[j] + b[i]


@op
def s122(a: inout(f32[N]), b: f32[N], *, n1: int, n3: int):
    """The start and the step, arguments in TSVC, are constants: a loop's step is one in the language."""
    j = 1
    k = 0
    for i in range(n1 - 1, N, n3):
        k += j
        a[i] += b[N - k]


@op
def s123(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], e: f32[N]):
    j = -1
    for i in range(N // 2):
        j += 1
        a[j] = b[i] + d[i] * e[i]
        if c[i] > 0.0:
            j += 1
            a[j] = c[i] + d[i] * e[i]


@op
def s124(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], e: f32[N]):
    j = -1
    for i in range(N):
        if b[i] > 0.0:
            j += 1
            a[j] = b[i] + d[i] * e[i]
        else:
            j += 1
            a[j] = c[i] + d[i] * e[i]


@op
def s125(flat: inout(f32[L]), aa: f32[M, M], bb: f32[M, M], cc: f32[M, M]):
    k = -1
    for i in range(M):
        for j in range(M):
            k += 1
            flat[k] = aa[i, j] + bb[i, j] * cc[i, j]


@op
def s126(bb: inout(f32[M, M]), cc: f32[M, M], flat: f32[L]):
    k = 1
    for i in range(M):
        for j in range(1, M):
            bb[j, i] = bb[j - 1, i] + flat[k - 1] * cc[j, i]
            k += 1
        k += 1


@op
def s127(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], e: f32[N]):
    j = -1
    for i in range(N // 2):
        j += 1
        a[j] = b[i] + c[i] * d[i]
        j += 1
        a[j] = b[i] + d[i] * e[i]


@op
def s128(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N]):
    j = -1
    for i in range(N // 2):
        k = j + 1
        a[i] = b[k] - d[i]
        j = k + 1
        b[k] = a[i] + c[k]
