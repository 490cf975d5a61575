"""An error inside a helper shows the call too."""

from polyc import dims, f32, inout, op

N = dims("N")


def half(x):
    try:
        return x / 2
    except ZeroDivisionError:
        return 0.0


@op
def program(A: inout(f32[N])):
    for i in range(N):
        A[i] = half(A[i])
