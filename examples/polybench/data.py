"""Random inputs on which the kernels are numerically well behaved."""

import numpy as np


def uniform(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Values in [0.5, 1.5): no zeros and no cancellation in products."""
    return rng.uniform(0.5, 1.5, shape)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal values."""
    return rng.standard_normal(shape)


def positive_definite(rng: np.random.Generator, n: int) -> np.ndarray:
    """A symmetric positive definite matrix of condition about 10."""
    a = rng.standard_normal((n, n))
    return a @ a.T / n + 0.5 * np.eye(n)


def dominant(rng: np.random.Generator, n: int) -> np.ndarray:
    """A matrix whose LU factors exist without pivoting (dominant diagonal)."""
    return rng.uniform(-1, 1, (n, n)) + n * np.eye(n)
