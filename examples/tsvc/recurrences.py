"""3.2 to 3.5 Recurrences, searches, packing, rerolling."""

from polyc import dims, empty, f32, i32, inout, op

N, M, L = dims("N M L")


@op
def s321(a: inout(f32[N]), b: f32[N]):
    for i in range(1, N):
        a[i] += a[i - 1] * b[i]


@op
def s322(a: inout(f32[N]), b: f32[N], c: f32[N]):
    for i in range(2, N):
        a[i] = a[i] + a[i - 1] * b[i] + a[i - 2] * c[i]


@op
def s323(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]):
    for i in range(1, N):
        a[i] = b[i - 1] + c[i] * d[i]
        b[i] = a[i] + c[i] * e[i]


@op
def s331(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    j = -1
    for i in range(N):
        if a[i] < 0.0:
            j = i
    result[()] = f32(j)
    return result


@op
def s332(a: f32[N], t: f32) -> f32[()]:
    result = empty((), f32)
    index = -2
    value = f32(-1.0)
    for i in range(N):
        if a[i] > t:
            index = i
            value = a[i]
            break
    result[()] = value + f32(index)
    return result


@op
def s341(a: inout(f32[N]), b: f32[N]):
    j = -1
    for i in range(N):
        if b[i] > 0.0:
            j += 1
            a[j] = b[i]


@op
def s342(a: inout(f32[N]), b: f32[N]):
    j = -1
    for i in range(N):
        if a[i] > 0.0:
            j += 1
            a[i] = b[j]


@op
def s343(flat: inout(f32[L]), aa: f32[M, M], bb: f32[M, M]):
    k = -1
    for i in range(M):
        for j in range(M):
            if bb[j, i] > 0.0:
                k += 1
                flat[k] = aa[j, i]


@op
def s351(a: inout(f32[N]), b: f32[N], c: f32[N]):
    alpha = c[0]
    for i in range(0, N, 5):
        a[i] += alpha * b[i]
        a[i + 1] += alpha * b[i + 1]
        a[i + 2] += alpha * b[i + 2]
        a[i + 3] += alpha * b[i + 3]
        a[i + 4] += alpha * b[i + 4]


@op
def s1351(a: inout(f32[N]), b: f32[N], c: f32[N]):
    """Subscripts for TSVC's pointers."""
    for i in range(N):
        a[i] = b[i] + c[i]


@op
def s352(a: f32[N], b: f32[N]) -> f32[()]:
    result = empty((), f32)
    dot = f32(0.0)
    for i in range(0, N, 5):
        dot = dot + a[i] * b[i] + a[i + 1] * b[i + 1] + a[i + 2] * b[i + 2] + a[i + 3] * b[i + 3] + a[i + 4] * b[i + 4]
    result[()] = dot
    return result


@op
def s353(a: inout(f32[N]), b: f32[N], c: f32[N], ip: i32[N]):
    alpha = c[0]
    for i in range(0, N, 5):
        a[i] += alpha * b[ip[i]]
        a[i + 1] += alpha * b[ip[i + 1]]
        a[i + 2] += alpha * b[ip[i + 2]]
        a[i + 3] += alpha * b[ip[i + 3]]
        a[i + 4] += alpha * b[ip[i + 4]]
