"""An input as result."""

from polyc import dims, f32, op

N = dims("N")


@op
def program(A: f32[N]):
    return A
