"""global."""

from polyc import dims, f32, inout, op

N = dims("N")
total = 0.0


@op
def program(A: inout(f32[N])):
    global total
    total = A[0]
