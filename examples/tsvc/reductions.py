"""3.1 Reductions."""

from polyc import dims, empty, f32, inout, op

N, M = dims("N M")


@op
def s311(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    result[()] = 0.0
    for i in range(N):
        result[()] += a[i]
    return result


def sum_of_four(a, start):
    s = f32(0.0)
    for i in range(4):
        s += a[start + i]
    return s


@op
def s31111(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    result[()] = 0.0
    for k in (0, 4, 8, 12, 16, 20, 24, 28):
        result[()] += sum_of_four(a, k)
    return result


@op
def s312(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    prod = f32(1.0)
    for i in range(N):
        prod *= a[i]
    result[()] = prod
    return result


@op
def s313(a: f32[N], b: f32[N]) -> f32[()]:
    result = empty((), f32)
    dot = f32(0.0)
    for i in range(N):
        dot += a[i] * b[i]
    result[()] = dot
    return result


@op
def s314(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    x = a[0]
    for i in range(N):
        if a[i] > x:
            x = a[i]
    result[()] = x
    return result


@op
def s315(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    x = a[0]
    index = 0
    for i in range(N):
        if a[i] > x:
            x = a[i]
            index = i
    result[()] = x + f32(index)
    return result


@op
def s316(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    x = a[0]
    for i in range(1, N):
        if a[i] < x:
            x = a[i]
    result[()] = x
    return result


@op
def s317(a: f32[N]) -> f32[()]:
    """The array, which nothing reads, gives the number of factors."""
    result = empty((), f32)
    q = f32(1.0)
    for _i in range(N // 2):
        q *= 0.99
    result[()] = q
    return result


@op
def s318(a: f32[N], *, inc: int) -> f32[()]:
    """The stride, an argument in TSVC, is a constant."""
    result = empty((), f32)
    k = 0
    index = 0
    top = abs(a[0])
    k += inc
    for i in range(1, N):
        if abs(a[k]) > top:
            index = i
            top = abs(a[k])
        k += inc
    result[()] = top + f32(index)
    return result


@op
def s319(a: inout(f32[N]), b: inout(f32[N]), c: f32[N], d: f32[N], e: f32[N]) -> f32[()]:
    result = empty((), f32)
    total = f32(0.0)
    for i in range(N):
        a[i] = c[i] + d[i]
        total += a[i]
        b[i] = c[i] + e[i]
        total += b[i]
    result[()] = total
    return result


@op
def s3110(aa: f32[M, M]) -> f32[()]:
    result = empty((), f32)
    top = aa[0, 0]
    xindex = 0
    yindex = 0
    for i in range(M):
        for j in range(M):
            if aa[i, j] > top:
                top = aa[i, j]
                xindex = i
                yindex = j
    result[()] = top + f32(xindex) + f32(yindex)
    return result


@op
def s13110(aa: f32[M, M]) -> f32[()]:
    result = empty((), f32)
    top = aa[0, 0]
    xindex = 0
    yindex = 0
    for i in range(M):
        for j in range(M):
            if aa[i, j] > top:
                top = aa[i, j]
                xindex = i
                yindex = j
    result[()] = top + f32(xindex) + f32(yindex)
    return result


@op
def s3111(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    total = f32(0.0)
    for i in range(N):
        if a[i] > 0.0:
            total += a[i]
    result[()] = total
    return result


@op
def s3112(a: f32[N], b: inout(f32[N])) -> f32[()]:
    result = empty((), f32)
    total = f32(0.0)
    for i in range(N):
        total += a[i]
        b[i] = total
    result[()] = total
    return result


@op
def s3113(a: f32[N]) -> f32[()]:
    result = empty((), f32)
    top = abs(a[0])
    for i in range(N):
        if abs(a[i]) > top:
            top = abs(a[i])
    result[()] = top
    return result
