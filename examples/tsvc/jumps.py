"""4.7 to 4.12 Calls, jumps out of loops, indirect addressing, statement functions."""

from polyc import dims, empty, f32, i32, inout, op

N, M = dims("N M")


@op
def s471(x: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    """TSVC calls a function that does nothing."""
    for i in range(N):
        x[i] = b[i] + d[i] * d[i]
        b[i] = c[i] + d[i] * e[i]


@op
def s481(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N]):
    """TSVC ends the process; an operator can only leave its loop."""
    for i in range(N):
        if d[i] < 0.0:
            break
        a[i] += b[i] * c[i]


@op
def s482(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        a[i] += b[i] * c[i]
        if c[i] > b[i]:
            break


@op
def s491(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], ip: i32[N]):
    for i in range(N):
        a[ip[i]] = b[i] + c[i] * d[i]


@op
def s4112(a: inout(f32[N]), b: f32[N], ip: i32[N], s: f32):
    for i in range(N):
        a[i] += b[ip[i]] * s


@op
def s4113(a: inout(f32[N]), b: f32[N], c: f32[N], ip: i32[N]):
    for i in range(N):
        a[ip[i]] = b[ip[i]] + c[i]


@op
def s4114(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], ip: i32[N], *, n1: int):
    """The start, an argument in TSVC, is a constant."""
    for i in range(n1 - 1, N):
        k = ip[i]
        a[i] = b[i] + c[N - k + 1 - 2] * d[i]


@op
def s4115(a: f32[N], b: f32[N], ip: i32[N]) -> f32[()]:
    result = empty((), f32)
    total = f32(0.0)
    for i in range(N):
        total += a[i] * b[ip[i]]
    result[()] = total
    return result


@op
def s4116(a: f32[N], aa: f32[M, M], ip: i32[N], *, j: int, inc: int) -> f32[()]:
    """The row and the offset, arguments in TSVC, are constants."""
    result = empty((), f32)
    total = f32(0.0)
    for i in range(M - 1):
        off = inc + i
        total += a[off] * aa[j - 1, ip[i]]
    result[()] = total
    return result


@op
def s4117(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N]):
    for i in range(N):
        a[i] = b[i] + c[i // 2] * d[i]


def product(x, y):
    return x * y


@op
def s4121(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        a[i] += product(b[i], c[i])
