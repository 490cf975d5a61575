"""Python fails at specialisation."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), *, blocks: int = 0):
    A[0] = 1.0 / blocks
