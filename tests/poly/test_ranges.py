"""Values of single iterators against enumeration; what depends on parameters has none."""

from __future__ import annotations

import islpy as isl
import numpy as np

from polyc.poly.forms.ranges import bounds, extremes, largest, points_of_box, value_range


def random_domain(rng: np.random.Generator) -> isl.Set:
    """A union of up to two boxes with a condition on both iterators; it may be empty."""
    parts = []
    for _ in range(int(rng.integers(1, 3))):
        (a, b), sizes, k = rng.integers(-3, 4, 2), rng.integers(0, 5, 2), int(rng.integers(-4, 9))
        parts.append(f"{a} <= i < {a + sizes[0]} and {b} <= j < {b + sizes[1]} and 2i + j <= {k}")
    return isl.Set("{ S[i, j] : " + " or ".join(parts) + " }")


def points_of(domain: isl.Set) -> np.ndarray:
    found: list[tuple[int, ...]] = []
    domain.foreach_point(
        lambda p: found.append(tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in (0, 1)))
    )
    return np.array(found).reshape(-1, 2)


def test_as_enumerated() -> None:
    rng = np.random.default_rng()
    for _ in range(100):
        domain = random_domain(rng)
        points = points_of(domain)
        time = isl.PwAff("{ S[i, j] -> [i - 2*(j mod 2) + floor(i/2)] }")
        if not len(points):
            assert points_of_box(domain) == 0
            assert bounds(domain, 0) is largest(domain, 1) is value_range(time, domain) is None
            continue
        low, high = points.min(0), points.max(0)
        for k in (0, 1):
            assert bounds(domain, k) == (low[k], high[k])
            assert largest(domain, k) == high[k]
        assert points_of_box(domain) == (high - low + 1).prod()
        times = points[:, 0] - 2 * (points[:, 1] % 2) + points[:, 0] // 2
        assert value_range(time, domain) == (times.min(), times.max())


def test_integers_on_their_own_domain_only() -> None:
    """isl simplifies floor(i / 2) where i is fixed, to a fraction."""
    time = isl.PwAff("{ S[i, j] -> [i - 2*(j mod 2) + floor(i/2)] }")
    assert value_range(time, isl.Set("{ S[i = -3, j = 1]; S[i = 3, j = 0] }")) == (-7, 4)
    for text in ("[n] -> { [floor(n/2)] : n = 3 or n = -1 }", "[n] -> { S[i] -> [floor(i/2)] : i = 3 or i = -1 }"):
        assert [v.to_python() for v in extremes(isl.PwAff(text))] == [-1, 1]


def test_what_depends_on_parameters() -> None:
    domain = isl.Set("[n] -> { S[i, j] : 0 <= i < n <= 9 and 0 <= j < 4 }")
    assert largest(domain, 0) is None and largest(domain, 1) == 3
    assert bounds(domain, 0) == (0, 8)  # over all values of the parameter
    assert value_range(isl.PwAff("[n] -> { S[i, j] -> [i] }"), domain) is None
    assert value_range(isl.PwAff("[n] -> { S[i, j] -> [j + 1] }"), domain) == (1, 4)
    assert points_of_box(isl.Set("[n] -> { S[i] : 0 <= i < n }")) is None
