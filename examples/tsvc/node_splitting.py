"""2.4 Node splitting: what a later store overwrites is read first."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def s241(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N]):
    for i in range(N - 1):
        a[i] = b[i] * c[i] * d[i]
        b[i] = a[i] * a[i + 1] * d[i]


@op
def s242(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], s1: f32, s2: f32):
    for i in range(1, N):
        a[i] = a[i - 1] + s1 + s2 + b[i] + c[i] + d[i]


@op
def s243(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(N - 1):
        a[i] = b[i] + c[i] * d[i]
        b[i] = a[i] + d[i] * e[i]
        a[i] = b[i] + a[i + 1] * d[i]


@op
def s244(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N]):
    for i in range(N - 1):
        a[i] = b[i] + c[i] * d[i]
        b[i] = c[i] + b[i]
        a[i + 1] = b[i] + a[i + 1] * d[i]


@op
def s1244(a: inout(f32[N]), b: f32[N], c: f32[N], d: inout(f32[N])):
    for i in range(N - 1):
        a[i] = b[i] + c[i] * c[i] + b[i] * b[i] + c[i]
        d[i] = a[i] + a[i + 1]


@op
def s2244(a: inout(f32[N]), b: f32[N], c: f32[N], e: f32[N]):
    for i in range(N - 1):
        a[i + 1] = b[i] + e[i]
        a[i] = b[i] + c[i]
