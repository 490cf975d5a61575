"""Points of loops: what they refuse is negative at an iteration that exists."""

import itertools
import random
from collections.abc import Iterator

from polyc.emit.loop_ir import linear as forms
from polyc.emit.loop_ir.linear import Linear, nonnegative
from polyc.emit.loop_ir.points import Bounds, negative_somewhere, points
from polyc.poly.binding import evaluate
from polyc.poly.dtypes import i64
from polyc.poly.expr import Binary, Expr, Load, Var, const_int

A, B, N = Var("a"), Var("b"), Var("N")


def plus(a: Expr, b: int) -> Expr:
    """Plus a constant."""
    return Binary("+", a, const_int(b), i64)


def binary(op: str, a: Expr, b: Expr | int) -> Expr:
    """Of indices."""
    return Binary(op, a, const_int(b) if isinstance(b, int) else b, i64)


def random_loops(rng: random.Random) -> dict[str, tuple[Expr, Expr]]:
    """A nest of three loops, some of them empty for some iterations around."""
    ends = [
        *(
            const_int(0),
            N,
            A,
            plus(A, 1),
            binary("-", N, A),
            binary("min", plus(A, 2), 4),
            binary("max", plus(A, -1), 0),
        ),
        *(binary("//", plus(A, 3), 2), B, binary("-", const_int(5), B), binary("*", B, 2)),
    ]
    loops = {"a": (const_int(0), rng.choice([const_int(4), N]))}
    for name, seen in (("b", 8), ("c", 11)):
        loops[name] = rng.choice(ends[:seen]), rng.choice(ends[:seen])
    return loops


def iterations(loops: Bounds, values: dict[str, int]) -> Iterator[dict[str, int]]:
    """All of them, for given sizes."""
    if not loops:
        yield values
        return
    (name, (lo, hi)), *inner = loops
    for at in range(evaluate(lo, values), evaluate(hi, values)):
        yield from iterations(tuple(inner), {**values, name: at})


def test_every_point_is_an_iteration() -> None:
    rng = random.Random(11)
    for _ in range(200):
        bounds = tuple(random_loops(rng).items())
        for _, values in points(bounds):
            for name, (lo, hi) in bounds:
                assert evaluate(lo, values) <= values[name] < evaluate(hi, values)


def test_what_is_refused_is_negative_and_is_what_the_search_does_not_find() -> None:
    rng = random.Random(5)
    refused = 0
    for _ in range(400):
        loops = random_loops(rng)
        form = Linear(
            tuple((Var(v), rng.choice([-2, -1, 1, 2])) for v in ("a", "b", "c", "N") if rng.random() < 0.7), 0
        )
        form = form.shift(rng.randrange(-3, 8))
        bounds = tuple(loops.items())
        reached = [
            form.const + sum(c * evaluate(v, values) for v, c in form.terms)
            for n in range(7)
            for values in iterations(bounds, {"N": n})
        ]
        if negative_somewhere(form.terms, form.const, bounds):
            refused += 1
            assert not forms._nonnegative(form, loops, forms.DEEPEST, {}, forms.MOST_FORMS)
        elif nonnegative(form, loops):
            assert min(reached, default=0) >= 0
    assert refused > 50


def test_loops_whose_bounds_are_data_have_no_points() -> None:
    data = Load("L", (A,), i64)
    loops = (("a", (const_int(0), const_int(4))), ("b", (const_int(0), data)), ("c", (B, const_int(3))))
    assert points(loops) == ()
    assert not negative_somewhere(((Var("c"), 1),), -5, loops)
    ring = (("a", (B, const_int(4))), ("b", (A, const_int(4))))
    assert points(ring) == ()
    assert not negative_somewhere(((A, -1),), 0, ring)


def test_a_form_over_data_is_not_refused() -> None:
    loops = (("a", (const_int(0), const_int(4))),)
    assert not negative_somewhere(((Load("L", (A,), i64), 1),), -1, loops)


def test_sizes_of_the_form_alone_are_large_somewhere() -> None:
    loops = (("a", (const_int(0), const_int(4))),)
    assert negative_somewhere(((Var("M"), -1),), 500, loops)
    assert not negative_somewhere(((Var("M"), 1), (A, 1)), 0, loops)
    assert list(itertools.islice(points(loops), 1))[0][1].keys() == {"a"}
