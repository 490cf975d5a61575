"""A counter that is set anew in each iteration of a loop counts from there, not from the loop's first iteration."""

import numpy as np

from polyc import dims, i64, inout, op

N = dims("N")


@op
def summed(A: inout(i64[N])):
    for i in range(N):
        s = 0
        for _ in range(3):
            s += 4
        A[i] += s


def test_a_counter_that_begins_anew() -> None:
    a = np.zeros(5, np.int64)
    summed.compile()(a)
    assert a.tolist() == [12] * 5
