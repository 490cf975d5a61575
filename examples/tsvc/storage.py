"""4.2 to 4.5 Arrays that overlap, parameters, other conditions, intrinsic functions."""

from polyc import cos, dims, f32, i32, inout, op, sin

N, L = dims("N L")


@op
def s421(flat: inout(f32[L]), a: f32[N]):
    """TSVC's two pointers to one array are one array."""
    for i in range(N - 1):
        flat[i] = flat[i + 1] + a[i]


@op
def s1421(a: f32[N], b: inout(f32[N])):
    """A pointer into the middle of `b` is a subscript."""
    for i in range(N // 2):
        b[i] = b[N // 2 + i] + a[i]


@op
def s422(flat: inout(f32[L]), a: f32[N]):
    for i in range(N):
        flat[i + 4] = flat[i + 8] + a[i]


@op
def s423(flat: inout(f32[L]), a: f32[N]):
    for i in range(N - 1):
        flat[i + 1] = flat[i + 64] + a[i]


@op
def s424(flat: inout(f32[L]), a: f32[N]):
    for i in range(N - 1):
        flat[i + 64] = flat[i] + a[i]


@op
def s431(a: inout(f32[N]), b: f32[N]):
    k1 = 1
    k2 = 2
    k = 2 * k1 - k2
    for i in range(N):
        a[i] = a[i + k] + b[i]


@op
def s441(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N]):
    for i in range(N):
        if d[i] < 0.0:
            a[i] += b[i] * c[i]
        elif d[i] == 0.0:
            a[i] += b[i] * b[i]
        else:
            a[i] += c[i] * c[i]


@op
def s442(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N], e: f32[N], indx: i32[N]):
    """Conditions for TSVC's computed jump."""
    for i in range(N):
        if indx[i] == 2:
            a[i] += c[i] * c[i]
        elif indx[i] == 3:
            a[i] += d[i] * d[i]
        elif indx[i] == 4:
            a[i] += e[i] * e[i]
        else:
            a[i] += b[i] * b[i]


@op
def s443(a: inout(f32[N]), b: f32[N], c: f32[N], d: f32[N]):
    for i in range(N):
        if d[i] <= 0.0:
            a[i] += b[i] * c[i]
        else:
            a[i] += b[i] * b[i]


@op
def s451(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        a[i] = sin(b[i]) + cos(c[i])


@op
def s452(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(N):
        a[i] = b[i] + c[i] * f32(i + 1)


@op
def s453(a: inout(f32[N]), b: f32[N]):
    s = f32(0.0)
    for i in range(N):
        s += 2.0
        a[i] = s * b[i]
