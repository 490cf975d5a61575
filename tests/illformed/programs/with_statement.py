"""with."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N])):
    with open("log") as log:
        A[0] = 1.0


# ruff: noqa: F841
