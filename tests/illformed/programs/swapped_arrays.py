"""Two arrays that change places inside a loop."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), B: inout(f32[N])):
    for t in range(10):
        for i in range(N):
            B[i] = A[i] * 0.5
        A, B = B, A
