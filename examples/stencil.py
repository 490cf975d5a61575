"""Why a transformation is refused, and what makes it legal: tiling a stencil needs a skew first."""

import numpy as np

import polyc
from polyc import dims, f64, inout, op

N = dims("N")


@op(reassociate=False)
def jacobi(A: inout(f64[N]), B: inout(f64[N]), *, steps: int = 20):
    for t in range(steps):
        for i in range(1, N - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for j in range(1, N - 1):
            A[j] = 0.33333 * (B[j - 1] + B[j] + B[j + 1])


@op(reassociate=False)
def seidel(A: inout(f64[N, N]), *, steps: int = 10):
    for t in range(steps):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.2 * (A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] + A[i + 1, j])


def main() -> None:
    program = seidel.scop().schedule()
    try:
        program.tile(["t", "i", "j"], [4, 8, 8])
    except polyc.IllegalSchedule as refusal:
        print("tiling as it stands is refused:")
        print(" ", refusal)

    tiled = program.skew("i", "t", 1).skew("j", "t", 1).tile(["t", "i", "j"], [4, 8, 8])
    print("\nafter skewing i and j by t it is legal:")
    print(tiled.tree)

    rng = np.random.default_rng()
    start = rng.standard_normal((50, 50))
    by_python, by_kernel = start.copy(), start.copy()
    seidel.python(by_python)
    seidel.compile(schedule=tiled)(by_kernel)
    print("\nbit-equal to plain Python:", np.array_equal(by_python, by_kernel))

    a, b = rng.standard_normal(100), rng.standard_normal(100)
    a2, b2 = a.copy(), b.copy()
    jacobi(a, b)
    jacobi.python(a2, b2)
    print("jacobi, automatic schedule, bit-equal:", np.array_equal(a, a2) and np.array_equal(b, b2))
    assert np.array_equal(by_python, by_kernel) and np.array_equal(a, a2)


if __name__ == "__main__":
    main()
