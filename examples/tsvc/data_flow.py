"""1.3 to 1.6 Global data flow, nonlinear subscripts, calls, control flow that excludes dependences."""

from polyc import dims, f32, inout, op

N, M, L = dims("N M L")


@op
def s131(a: inout(f32[N]), b: f32[N]):
    m = 1
    for i in range(N - 1):
        a[i] = a[i + m] + b[i]


@op
def s132(aa: inout(f32[M, M]), b: f32[N], c: f32[N]):
    m = 0
    j = m
    k = m + 1
    for i in range(1, M):
        aa[j, i] = aa[k, i - 1] + b[i] * c[1]


@op
def s141(flat: inout(f32[L]), bb: f32[M, M]):
    for i in range(M):
        k = (i + 1) * i // 2 + i
        for j in range(i, M):
            flat[k] += bb[j, i]
            k += j + 1


def add_shifted(a, b, m):
    for i in range(a.shape[0] - 1):
        a[i] = a[i + m] + b[i]


@op
def s151(a: inout(f32[N]), b: f32[N]):
    add_shifted(a, b, 1)


def add_product(a, b, c, i):
    a[i] += b[i] * c[i]


@op
def s152(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(N):
        b[i] = d[i] * e[i]
        add_product(a, b, c, i)


@op
def s161(a: inout(f32[N]), b: f32[N], c: inout(f32[N]), d: f32[N], e: f32[N]):
    """With `if` and `else` for TSVC's jumps."""
    for i in range(N - 1):
        if b[i] < 0.0:
            c[i + 1] = a[i] + d[i] * d[i]
        else:
            a[i] = c[i] + d[i] * e[i]


@op
def s1161(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    """With `if` and `else` for TSVC's jumps."""
    for i in range(N - 1):
        if c[i] < 0.0:
            b[i] = a[i] + d[i] * d[i]
        else:
            a[i] = c[i] + d[i] * e[i]


@op
def s162(a: inout(f32[N]), b: f32[N], c: f32[N], *, k: int):
    """The distance, an argument in TSVC, is a constant: subscripts must stay inside."""
    if k > 0:
        for i in range(N - 1):
            a[i] = a[i + k] + b[i] * c[i]
