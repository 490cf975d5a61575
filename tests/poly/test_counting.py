"""Counting formulas against counting the points one by one."""

from __future__ import annotations

import itertools
import random

import islpy as isl
import pytest

from examples import polybench
from polyc.poly.closed_forms.counting import count_image, count_or_bound, count_set
from polyc.poly.closed_forms.formula import Formula
from polyc.poly.closed_forms.pieces import CountingError
from polyc.poly.closed_forms.summed import Summed, count_in_sums
from polyc.poly.errors import ArgumentError
from polyc.poly.rewriting.specialise import fix_params
from polyc.scheduler.questions.counts import region
from polyc.scheduler.schedule import Schedule

KNOWN = {
    "[M,N,K] -> { [i,j,k] : 0<=i<M and 0<=j<N and 0<=k<K }": "K*M*N",
    "[N] -> { [i,j] : 0<=i<N and 0<=j<i }": "N*(N - 1)/2",
    "[N] -> { [i,j,k] : 0<=i<N and 0<=j<i and 0<=k<j }": "N*(N - 1)*(N - 2)/6",
    "[N] -> { [i,j,k] : 0<=i<N and 0<=j<=i and 0<=k<=j }": "N*(N + 1)*(N + 2)/6",
    "[N] -> { [o] : exists i : 0<=i<N and o=floor(i/4) }": "(N + 3)//4",
    "[N] -> { [o,p,i,j] : 0<=i<N and 0<=j<=i and o=floor(i/4) and p=floor(j/4) }": "N*(N + 1)/2",
    "[N] -> { [i] : 3<=i<N-3 }": "N - 6 if N >= 7; 0 otherwise",
    "[N] -> { [i] : i = 0 }": "1",
    "[N] -> { [i] : false }": "0",
    "[N,o] -> { [i] : 0<=i<N and 32o<=i<=32o+31 and o>=0 and 32o<N }": "min(32, N - 32*o)",
}


def brute(points: isl.Set, values: dict[str, int]) -> int:
    return int(fix_params(points, values).count_val().to_python())


def compare(points: isl.Set, formula: Formula, top: int, some: int = 400, seed: int = 0) -> None:
    """For all values of the sizes up to `top` (or `some` of them)."""
    grid = list(itertools.product(range(1, top + 1), repeat=len(formula.names)))
    if len(grid) > some:
        grid = random.Random(seed).sample(grid, some)
    for row in grid:
        values = dict(zip(formula.names, row))
        assert formula(values) == brute(points, values), (str(formula), values)


@pytest.mark.parametrize("text", KNOWN)
def test_known_formulas(text: str) -> None:
    points = isl.Set(text)
    params = isl.Set.universe(points.params().get_space())
    positive = params
    for k in range(params.dim(isl.dim_type.param)):
        least = 0 if points.get_dim_name(isl.dim_type.param, k) == "o" else 1
        positive = positive.lower_bound_val(isl.dim_type.param, k, isl.Val(least))
    if "o>=0" in text:
        positive = positive.intersect(points.params())
        assert str(count_set(points, positive)) == KNOWN[text]
        return
    formula = count_set(points, positive)
    assert str(formula) == KNOWN[text] and formula.exact
    compare(points, formula, 12)


@pytest.mark.parametrize(
    "text",
    [
        "[N,M] -> { [i,j] : 0<=i<N and 0<=j<M and (i+j)%3=0 }",
        "[N] -> { [i,j] : 0<=i and 0<=j and 2i+3j<=N }",
        "[N,M] -> { [i,j] : 0<=i<=M and 0<=j and 2i+3j=N }",
        "[N] -> { [x] : exists i,j : 0<=i<N and 0<=j<3 and x = 2i+j }",
        "[N] -> { [x] : exists i,j : 0<=i<N and 0<=j<3 and x = 5i+j }",
        "[N,T] -> { [t,i] : 0<=t<T and 1<=i<N-1 and (t+i)%2=0 }",
        "[N,M] -> { [i] : 0<=i<N; [i] : M<=i<=2M }",
        "[N,M] -> { [i,j] : 0<=i<N and i<=j<min(N,i+M) }",
        "[N] -> { [a,b,c] : 0<=a<N and a<=b<N and 0<=c<b-a and c%2=0 }",
        "[N] -> { [a,b] : 0<=3a+2b<=N and 0<=a-b<=N }",
        "[N,M] -> { [a,b] : 0<=a<N and 0<=b<M and a+b>=4 and a-b<=2 }",
    ],
)
def test_floors_remainders_and_unions(text: str) -> None:
    points = isl.Set(text)
    compare(points, count_set(points), 12)


TILED = {
    "a triangle": "[N] -> { [t,u,i,j] : 0<=i<N and 0<=j<=i and 8t<=i<8t+8 and 8u<=j<8u+8 }",
    "its tiles": "[N] -> { [t,u] : 0<=u<=t and 8t<N }",
    "rows of its tiles": "[N] -> { [t,u,i] : 0<=u<=t and 8t<=i<8t+8 and i<N }",
    "two levels": "[N] -> { [t,u,a,b] : 0<=u<t and 0<=a<=3 and 0<=b<=1 and 12t+3a<N and 12u+6b<N }",
    "two sizes": "[N,M] -> { [t,i,j] : 0<=i<N and i<=j<M and 8t<=j<8t+8 }",
    "skewed": "[N,T] -> { [a,t,i] : 0<=t<T and 0<=i<N and 8a<=t+i<8a+8 and i<=2t }",
    "an equality": "[N] -> { [t,i,j] : 0<=i<N and i<j<N and 8t+5=j }",
    "a step": "[N] -> { [t,i,j] : 0<=8t<N and 8t<=i<min(N,8t+8) and i<=j<8t+8 and (j-i) mod 3 = 0 }",
}


@pytest.mark.parametrize("which", TILED)
def test_tiles_are_counted_in_digits(which: str) -> None:
    points = isl.Set(TILED[which])
    formula = count_set(points, isl.Set.universe(points.params().get_space()))
    assert formula.exact
    compare(points, formula, 40, some=120)


def test_what_digits_keep_short() -> None:
    """Pairs of tiles with rests of their own: a polynomial, where other ways have a floor for each constant."""
    both = isl.Set("[N] -> { [t,u,v,a,b] : t<u and t<v and 0<=t and 0<=a<=15 and 96u+6a<N and 0<=b<=11 and 96v+8b<N }")
    formula = count_set(both, isl.Set("[N] -> { : N >= 1 }").params())
    assert formula.exact and len(formula.pieces) <= 2 and len(str(formula)) < 800
    for n in (1, 7, 96, 97, 191, 192, 200, 300):
        tiles = [(u, v) for u in range(0, n) for v in range(1) if 96 * u < n]
        rows = [sum(96 * u + 6 * a < n for a in range(16)) for u, _ in tiles]
        columns = [sum(96 * v + 8 * b < n for b in range(12)) for v, _ in tiles]
        assert formula(N=n) == sum(sum(rows[t + 1 :]) * sum(columns[t + 1 :]) for t in range(len(tiles)))


@pytest.mark.parametrize("name", polybench.MODULES)
def test_domains_of_polybench(name: str) -> None:
    k = polybench.load(name)
    constants = {"tsteps": 3} if "tsteps" in k.operator.signature.constants else {}
    scop = k.operator.scop(**constants)
    schedule = Schedule.start(scop)
    seen: list[isl.Set] = []
    for s in scop.statements.values():
        plain = s.domain.reset_tuple_id()
        if not any(plain.plain_is_equal(x) for x in seen):
            seen.append(plain)
            formula = count_set(s.domain, scop.context)
            compare(s.domain.intersect_params(scop.context), formula, 10, some=20)
    total = schedule.count("instances")
    assert total.exact
    values = dict(zip(total.names, (5, 4, 6, 3, 7)))
    assert total(values) == sum(brute(s.domain, values) for s in scop.statements.values())


@pytest.mark.parametrize("name", ["gemm", "trmm", "syrk", "seidel-2d", "jacobi-1d", "floyd-warshall", "cholesky"])
def test_footprints_of_tiles(name: str) -> None:
    """Distinct elements of every array in every tile equal those counted one by one."""
    k = polybench.load(name)
    constants = {"tsteps": 4} if "tsteps" in k.operator.signature.constants else {}
    scop = k.operator.scop(**constants)
    s = Schedule.start(scop)
    band = next(iter(s.permutable_bands()), s.loops[:1])
    s = s.tile(list(band), [3] * len(band))
    at = f"{band[-1]}.out"
    here = region(s.scop, s.tree, at)
    values = dict(zip(scop.params, (7, 5, 6, 4)))
    loops = [n for n in here.names]
    iterations = isl_points(here.context, values, loops)
    assert iterations
    for array in scop.arrays.values():
        formula = s.footprint(array.name, at)
        best = 0
        for row in random.Random(0).sample(iterations, min(8, len(iterations))):
            sizes = {**values, **dict(zip(loops, row))}
            assert formula(sizes) == touched(s, at, array.name, sizes)
        for row in iterations:
            best = max(best, formula({**values, **dict(zip(loops, row))}))
        assert formula.largest(values) == best


def isl_points(context: isl.Set, values: dict[str, int], loops: list[str]) -> list[tuple[int, ...]]:
    fixed = fix_params(context, values)
    count = fixed.dim(isl.dim_type.param)
    assert [fixed.get_dim_name(isl.dim_type.param, k) for k in range(count)] == loops
    found: list[tuple[int, ...]] = []
    isl.Set.from_params(fixed).move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count).foreach_point(
        lambda p: found.append(tuple(int(p.get_coordinate_val(isl.dim_type.set, k).to_python()) for k in range(count)))
    )
    return found


def touched(s: Schedule, at: str, array: str, values: dict[str, int]) -> int:
    from polyc.poly.access import accesses

    here = region(s.scop, s.tree, at)
    elements: isl.Set | None = None
    for a in accesses(s.scop):
        if a.array == array and a.stmt in here.times:
            part = here.points(a.stmt, a.map.domain())
            image = fix_params(part, values).apply(fix_params(a.map.wrap(), values).unwrap())
            elements = image if elements is None else elements.union(image)
    return 0 if elements is None else int(elements.count_val().to_python())


def random_set(rng: random.Random) -> isl.Set:
    """A bounded set of one to three dimensions with random constraints on two sizes."""
    dims = ["i", "j", "k"][: rng.randint(1, 3)]
    rows = [f"{rng.randint(-2, 2)} <= {d} < {rng.choice(['N', 'M', 'N + M', '2N', '6'])}" for d in dims]
    for _ in range(rng.randint(0, 2)):
        terms = " + ".join(f"{rng.choice([-3, -2, -1, 1, 1, 2, 3])}{x}" for x in rng.sample([*dims, "N", "M"], 2))
        rows.append(f"{terms} >= {rng.randint(-4, 2)}")
    if rng.random() < 0.4:
        d = rng.choice(dims)
        rows.append(f"({d} + {rng.choice([*dims, 'N'])}) mod {rng.randint(2, 4)} = {rng.randint(0, 1)}")
    if rng.random() < 0.3:
        d = dims.pop(rng.randrange(len(dims)))
        return isl.Set(f"[N, M] -> {{ [{', '.join(dims)}] : exists {d} : {' and '.join(rows)} }}")
    return isl.Set(f"[N, M] -> {{ [{', '.join(dims)}] : {' and '.join(rows)} }}")


def check_random(seed: int) -> bool:
    """Whether it was counted; a wrong count fails."""
    points = random_set(random.Random(seed))
    try:
        formula = count_set(points)
    except CountingError:
        bound = count_or_bound(points)
        assert not bound.exact
        for n, m in itertools.product((1, 3, 6), repeat=2):
            assert bound(N=n, M=m) >= brute(points, {"N": n, "M": m})
        return False
    if "N" in formula.names:
        compare(points, formula, 7, some=25, seed=seed)
    return True


def test_random_sets() -> None:
    counted = sum(check_random(seed) for seed in range(40))
    assert counted >= 36


@pytest.mark.long
def test_random_sets_long() -> None:
    counted = sum(check_random(seed) for seed in range(1000, 1600))
    assert counted >= 540


def test_formulas_add_multiply_and_name_what_is_missing() -> None:
    a = count_set(isl.Set("[N] -> { [i] : 0 <= i < N }"), isl.Set("[N] -> { : N > 0 }"))
    b = count_set(isl.Set("[M] -> { [i,j] : 0 <= i <= j < M }"), isl.Set("[M] -> { : M > 0 }"))
    assert str(a + b) == "(M**2 + M + 2*N)/2" and (a + b)(N=3, M=4) == 13
    assert str(a * b) == "M*N*(M + 1)/2" and (a * b)(N=3, M=4) == 30
    assert str(a / b) == "2*N / (M*(M + 1))" and (a / b)(N=3, M=2) == 1.0
    with pytest.raises(ArgumentError, match="needs a value for M"):
        b()
    with pytest.raises(ArgumentError, match="no size 'Q'"):
        a(N=1, Q=2)
    with pytest.raises(ArgumentError, match="not meant for N=0"):
        a(N=0)


def test_the_image_of_one_input() -> None:
    relation = isl.Map("[N] -> { [i] -> A[x] : 0 <= i < N and i <= x <= i + 2 and x < N }")
    formula = count_image(relation, ["i"], isl.Set("[N, i] -> { : 0 <= i < N }"))
    assert str(formula) == "min(3, N - i)" and formula(N=5, i=4) == 1


def test_what_is_infinite_or_too_hard_says_so() -> None:
    with pytest.raises(CountingError, match="infinite"):
        count_set(isl.Set("[N] -> { [i] : i >= N }"))
    hard = isl.Set("[N,M] -> { [i,j,k] : 0<=i<=M and 0<=j and 0<=k and 2i+3j+5k<=N }")
    bound = count_or_bound(hard)
    assert not bound.exact and "not counted exactly" in bound.why and str(bound).startswith("at most ")
    assert all(bound(N=n, M=m) >= brute(hard, {"N": n, "M": m}) for n, m in itertools.product(range(8), repeat=2))


@pytest.mark.parametrize("text", [t for t in KNOWN if "[i,j" in t or "[o,p" in t])
def test_sums_over_outer_dimensions_are_the_same_numbers(text: str) -> None:
    points = isl.Set(text)
    context = isl.Set.universe(points.params().get_space())
    closed = count_set(points)
    found = count_in_sums(points, context, 1_000_000, 100, 3, closed=False)
    assert isinstance(found, Summed) and found.exact
    for n in (0, 1, 2, 5, 11):
        sizes = {name: n + k for k, name in enumerate(closed.names)}
        assert found(sizes) == closed(sizes) and (found * 3)(sizes) == 3 * closed(sizes)


def test_a_sum_reads_as_one() -> None:
    points = isl.Set("[N] -> { [i,j] : 0<=i<N and 0<=j<i }")
    found = count_in_sums(points, isl.Set("[N] -> { : N > 0 }"), 1_000_000, 100, 3, closed=False)
    assert str(found) == "sum of (i) over i with 0 < i < N"
