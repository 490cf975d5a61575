"""Arithmetic on booleans."""

from polyc import bool_, dims, i32, inout, op

N = dims("N")


@op
def program(A: bool_[N], B: bool_[N], C: inout(i32[N])):
    for i in range(N):
        C[i] = A[i] + B[i]
