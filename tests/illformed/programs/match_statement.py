"""match."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), *, mode: int = 1):
    match mode:
        case 1:
            A[0] = 1.0
