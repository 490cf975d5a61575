"""Operators whose annotations are texts, and lambdas at awkward places, as pickles."""

from __future__ import annotations

import pickle

import numpy as np

from polyc import dims, empty, f32, op

K = dims("K")
# fmt: off
pair = (lambda v: v + 1.0, lambda v: v * 3.0)
wide = (lambda v:  # noqa: E731
            v - 2.0)
# fmt: on


@op
def f(X: f32[K], *, act: str = "none") -> f32[K]:
    Y = empty((K,), f32)
    for i in range(K):
        Y[i] = pair[1](pair[0](wide(X[i])))
    return Y


def test_texts_and_lambdas() -> None:
    x = np.arange(3, dtype=np.float32)
    copied = pickle.loads(pickle.dumps(f))
    assert copied(x).tolist() == f(x).tolist() == [-3, 0, 3]
    assert copied.signature.constants == {"act": "none"}
    made = op.from_source("def g(X: f32[K]) -> f32[K]:\n    return f(X)\n")
    assert pickle.loads(pickle.dumps(made))(x).tolist() == [-3, 0, 3]
