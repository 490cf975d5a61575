"""**options."""

from polyc import dims, f32, inout, op

N = dims("N")


@op
def program(A: inout(f32[N]), **options):
    A[0] = 0.0
