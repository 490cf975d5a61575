"""A call that changes an array in the middle of an expression."""

from polyc import dims, f32, inout, op

N = dims("N")


def bump(A, i):
    A[i] += 1
    return A[i]


@op
def program(A: inout(f32[N])):
    for i in range(N):
        A[i] = bump(A, i) + bump(A, i)
