"""An assertion that fails at specialisation."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), *, stride: int = 0):
    assert stride > 0, "stride must be positive"
    for i in range(0, N, stride):
        A[i] = 0.0
