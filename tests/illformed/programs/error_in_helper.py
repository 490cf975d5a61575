"""An error inside a helper shows the call too."""

from polyc import dims, f32, inout, op

N = dims("N")


def half(x):
    try:
        x = x / 2
    finally:
        return x  # noqa: B012


@op
def program(A: inout(f32[N])):
    for i in range(N):
        A[i] = half(A[i])
