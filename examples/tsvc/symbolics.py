"""1.7 Symbolics: strides, distances and bounds that TSVC passes at run time are constants here."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def s171(a: inout(f32[N]), b: f32[N], *, inc: int):
    for i in range(N):
        a[i * inc] += b[i]


@op
def s172(a: inout(f32[N]), b: f32[N], *, n1: int, n3: int):
    for i in range(n1 - 1, N, n3):
        a[i] += b[i]


@op
def s173(a: inout(f32[N]), b: f32[N]):
    k = N // 2
    for i in range(N // 2):
        a[i + k] = a[i] + b[i]


@op
def s174(a: inout(f32[N]), b: f32[N]):
    m = N // 2
    for i in range(m):
        a[i + m] = a[i] + b[i]


@op
def s175(a: inout(f32[N]), b: f32[N], *, inc: int):
    for i in range(0, N - 1, inc):
        a[i] = a[i + inc] + b[i]


@op
def s176(a: inout(f32[N]), b: f32[N], c: f32[N]):
    m = N // 2
    for j in range(N // 2):
        for i in range(m):
            a[i] += b[i + m - j - 1] * c[j]
