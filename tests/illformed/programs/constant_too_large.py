"""A literal that its dtype cannot hold."""

from polyc import dims, inout, op, u8

N = dims("N")


@op
def program(A: inout(u8[N])):
    for i in range(N):
        A[i] = A[i] + 300
