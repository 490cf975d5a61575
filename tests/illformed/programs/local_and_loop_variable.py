"""A local scalar, carried round a loop, that is a loop variable too."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    i = 0
    for t in range(N):
        A[t] = i
        for i in range(3):
            A[t] += i
