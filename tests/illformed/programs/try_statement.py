"""try."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    try:
        A[0] = 1.0
    except ValueError:
        pass
