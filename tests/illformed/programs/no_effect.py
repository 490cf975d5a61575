"""An operator that does nothing."""

from polyc import dims, f32, op

N = dims("N")


@op
def program(A: f32[N]):
    x = A[0]
    x = x * 2
