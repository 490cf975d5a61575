"""A local that is used before it is assigned."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    for i in range(N):
        A[i] = s
        s = A[i]


# ruff: noqa: F841
