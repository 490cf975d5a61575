"""JSON, specialisation, binding of sizes, verification, text, the isl quota."""

from __future__ import annotations

import gc
import random
import weakref
from dataclasses import replace

import islpy as isl
import numpy as np
import pytest
import random_scops
import small_scops as scops
from execute import execute
from small_scops import index, ref

from polyc.graph_driver.worker.compile_operator import auto_schedule, compile_operator
from polyc.poly.binding import bind_sizes
from polyc.poly.cache import per_scop
from polyc.poly.dependences import flow
from polyc.poly.dtypes import f32, f64, i64
from polyc.poly.errors import ArgumentError, ScopError
from polyc.poly.expr import Cast, Const, Span, Var, walk
from polyc.poly.json_io import dump_tree, dumps, load_tree, loads
from polyc.poly.legality import check
from polyc.poly.quota import QuotaExceeded, quota
from polyc.poly.rewriting.compose import rename
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.text import print_scop, print_tree
from polyc.poly.tree import Band, Filter, Leaf, Promote, Sequence
from polyc.poly.verify import verify

KERNELS = [scops.matmul, scops.lu, scops.seidel]


# ---- JSON ------------------------------------------------------------------------------------


def same(a: Scop, b: Scop) -> None:
    """Equal in everything, isl objects by meaning."""
    plain = ("name", "params", "args", "results", "reassociate", "fast_math", "notes")
    assert all(getattr(a, f) == getattr(b, f) for f in plain)
    assert a.context.is_equal(b.context) and dict(a.arrays) == dict(b.arrays)
    assert list(a.statements) == list(b.statements)
    for s, t in zip(a.statements.values(), b.statements.values(), strict=True):
        assert s.domain.is_equal(t.domain)
        assert replace(s, domain=t.domain) == t and s.span == t.span
    assert dump_tree(a.tree) == dump_tree(b.tree)


@pytest.mark.parametrize("make", KERNELS)
def test_json_round_trip_of_kernels(make) -> None:
    scop = make()
    same(scop, loads(dumps(scop)))
    assert dumps(loads(dumps(scop))) == dumps(scop) == dumps(make())


@pytest.mark.parametrize("make", KERNELS)
def test_a_text_of_isl_is_parsed_once(make) -> None:
    first, again = loads(dumps(make())), loads(dumps(make()))
    assert first.context is again.context
    assert all(s.domain is again.statements[n].domain for n, s in first.statements.items())


@pytest.mark.parametrize("seed", range(25))
def test_json_round_trip_of_random_scops_and_trees(seed: int) -> None:
    r = random.Random(seed)
    scop = random_scops.random_scop(r)
    scop = scop.with_tree(random_scops.random_tree(r, scop))
    same(scop, loads(dumps(scop)))
    assert dumps(loads(dumps(scop))) == dumps(scop)


@pytest.mark.parametrize("seed", range(30))
def test_json_does_not_depend_on_what_isl_did_before(seed: int) -> None:
    """isl drops redundant constraints of an object in place when it analyses it."""
    scop = scops.lu() if seed == 0 else random_scops.random_scop(random.Random(seed))
    before, text = dumps(scop), print_scop(scop)
    check(scop, scop.tree)
    flow(scop)
    assert dumps(scop) == before == dumps(loads(before)) and print_scop(scop) == text


def test_json_keeps_spans_and_odd_numbers() -> None:
    span = Span("f.py", 3, 4, 3, 9, "x = 1")
    s0 = replace(scops.stmt("S0", "S0[i] : 0 <= i < 4", "A[i]", Const(float("-inf"), f32)), span=span)
    s1 = scops.stmt("S1", "S1[i_1] : 0 <= i_1 < 4", "A[i_1]", Const(float("nan"), f32))
    tree = scops.seq(([s0], scops.band([s0], ["i"], Leaf())), ([s1], scops.band([s1], ["i_1"], Leaf())))
    scop = scops.scop("odd", [], {"A": ("4", "inout")}, [s0, s1], tree)
    back = loads(dumps(scop))
    assert back.statements["S0"].span == span and back.statements["S0"].value == Const(float("-inf"), f32)
    value = back.statements["S1"].value
    assert isinstance(value, Const) and value.value != value.value
    wrapped = Promote("A", "A_p", "local", tree, ((0, 2, 0), (0, 1, 2)), False, True)
    assert load_tree(dump_tree(wrapped)) == replace(wrapped, child=load_tree(dump_tree(wrapped)).children()[0])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version": 99}',
        dumps(scops.lu())[:-40],
        dumps(scops.lu()).replace("f32", "f33"),
        dumps(scops.lu()).replace("k >= 0", "k >="),
    ],
)
def test_json_that_is_no_scop_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ScopError) as error:
        loads(text)
    assert "\n" not in str(error.value)


# ---- specialisation --------------------------------------------------------------------------


def test_specialised_scop_has_no_parameter_left_and_means_the_same() -> None:
    sizes = {"M": 2, "N": 3, "K": 4}
    scop = specialise(scops.matmul(), sizes)
    assert scop.params == () and scop.arrays["A"].shape == (Const(2, i64), Const(4, i64))
    sets = [scop.context, *(s.domain for s in scop.statements.values())]
    assert all(s.dim(isl.dim_type.param) == 0 for s in sets)
    for node in _nodes(scop.tree):
        for m in node.members if isinstance(node, Band) else ():
            assert all(pa.dim(isl.dim_type.param) == 0 for pa in m.schedule.values())
        if isinstance(node, Filter):
            assert all(d.dim(isl.dim_type.param) == 0 for d in node.domain.values())
    verify(scop)
    r = np.random.default_rng(3)
    a, b = r.uniform(1, 2, (2, 4)).astype(np.float32), r.uniform(1, 2, (4, 3)).astype(np.float32)
    np.testing.assert_allclose(execute(scop, {"A": a, "B": b})["C"], a @ b, rtol=1e-5)


def _nodes(node):
    yield node
    for c in node.children():
        yield from _nodes(c)


def test_partial_specialisation_in_steps_is_specialisation_at_once() -> None:
    steps = specialise(specialise(scops.matmul(), {"N": 3}), {"M": 2, "K": 4})
    same(replace(steps), specialise(scops.matmul(), {"M": 2, "N": 3, "K": 4}))
    assert specialise(scops.matmul(), {"N": 3}).params == ("M", "K")


def test_specialise_substitutes_parameters_inside_floors_and_expressions() -> None:
    s0 = scops.stmt("S0", "S0[i] : 0 <= i < N", "A[N - 1 - i]", Cast(Var("N"), f32), ["N"])
    value = isl.PwAff("[N] -> { S0[i] -> [floor((i + N)/3)] }")
    band = scops.band([s0], ["i"], Leaf())
    tree = Band((replace(band.members[0], name="o", schedule={"S0": value}), band.members[0]), Leaf())
    scop = specialise(scops.scop("floors", ["N"], {"A": ("N", "out")}, [s0], tree), {"N": 7})
    assert isinstance(scop.tree, Band)
    assert scop.tree.members[0].schedule["S0"].is_equal(isl.PwAff("{ S0[i] -> [floor((i + 7)/3)] }"))
    assert scop.statements["S0"].value == Const(7.0, f32)
    assert not any(isinstance(e, Var) and e.name == "N" for e in walk(scop.statements["S0"].index[0]))
    assert execute(scop, {})["A"].tolist() == [7.0] * 7


def test_specialise_refuses_unknown_names_and_impossible_sizes() -> None:
    with pytest.raises(ArgumentError, match="'Q' is not a size of this operator .sizes: M, N, K"):
        specialise(scops.matmul(), {"Q": 1})
    with pytest.raises(ScopError, match="cannot run with N = -1"):
        specialise(scops.matmul(), {"N": -1})


# ---- binding ---------------------------------------------------------------------------------


def shaped(**arrays: str) -> Scop:
    """A Scop with these argument shapes over M, N (one trivial statement)."""
    s0 = scops.stmt("S0", "S0[]", "out", scops.zero(), ["M", "N"])
    kinds = {n: (shape, "in") for n, shape in arrays.items()} | {"out": ("", "out")}
    return scops.scop("shaped", ["M", "N"], kinds, [s0], Leaf())


@pytest.mark.parametrize("arrays, shapes, sizes", [
    ({"A": "M,N"}, {"A": (3, 4)}, {"M": 3, "N": 4}),
    ({"A": "N+1", "B": "M"}, {"A": (5,), "B": (2,)}, {"M": 2, "N": 4}),
    ({"A": "M+N", "B": "2*M"}, {"A": (7,), "B": (4,)}, {"M": 2, "N": 5}),
    ({"A": "M+N", "B": "M-N"}, {"A": (7,), "B": (3,)}, {"M": 5, "N": 2}),
    ({"A": "M,N,N//2,7"}, {"A": (0, 9, 4, 7)}, {"M": 0, "N": 9}),
    ({"A": "3*M - 2*N + 1", "B": "M", "C": "N"}, {"A": (6,), "B": (3,), "C": (2,)}, {"M": 3, "N": 2}),
])  # fmt: skip
def test_sizes_are_solved_for(arrays, shapes, sizes) -> None:
    assert bind_sizes(shaped(**arrays), shapes) == sizes


@pytest.mark.parametrize("arrays, shapes, message", [
    ({"A": "M,N", "B": "N"}, {"A": (3, 4), "B": (5,)},
     r"argument 'B' has size 5 on axis 0, expected N = 4 \(N = 4 from axis 1 of 'A'\)"),
    ({"A": "M,N"}, {"A": (3,)}, r"argument 'A' has 1 dimension \(3,\), expected 2"),
    ({"A": "M,N"}, {}, "argument 'A' is missing"),
    ({"A": "M,N"}, {"A": (1, 2), "Z": (1,)}, "no argument 'Z'"),
    ({"A": "2*M,N"}, {"A": (3, 1)}, "no integer M makes 2 [*] M equal to it"),
    ({"A": "M"}, {"A": (3,)}, "do not determine N"),
    ({"A": "M,N,3"}, {"A": (3, 1, 4)}, "'A' has size 4 on axis 2, expected 3"),
    ({"A": "M,N+2"}, {"A": (3, 1)}, "cannot run with M = 3, N = -1"),
    ({"A": "M,N,N//2"}, {"A": (3, 4, 3)}, r"size 3 on axis 2, expected N // 2 = 2 \(N = 4"),
])  # fmt: skip
def test_contradictions_name_argument_axis_and_values(arrays, shapes, message) -> None:
    with pytest.raises(ArgumentError, match=message):
        bind_sizes(shaped(**arrays), shapes)


# ---- verification ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", KERNELS)
def test_kernels_verify(make) -> None:
    verify(make())


def broken(**changes) -> Scop:
    scop = scops.matmul()
    return replace(scop, statements={**scop.statements, "S1": replace(scop.statements["S1"], **changes)})


@pytest.mark.parametrize("scop, message", [
    (broken(array="A", index=ref("A[i,k]").index, reduction=None), "writes the input 'A'"),
    (broken(value=ref("Q[i]"), reduction=None), "unknown array 'Q'"),
    (broken(value=ref("A[i]"), reduction=None), "1 subscript on 'A' of rank 2"),
    (broken(value=ref("A[i,q]"), reduction=None), "unknown variable 'q'"),
    (broken(value=ref("A[i,k]", f64), reduction=None), "f64"),
    (broken(reduction="*"), "not of that form"),
    (broken(iters=("i", "j")), "has iterators"),
    (broken(predicate=ref("A[i,k]")), "predicate of S1 is f32"),
    (replace(scops.matmul(), results=("C", "A")), "result 'A' is declared 'in'"),
    (replace(scops.matmul(), args=("A", "B", "X")), "'X' is an argument or result but no array"),
    (rename(scops.matmul(), {"i": "N"}), "'N' is used for two things"),
    (rename(scops.matmul(), {"S0": "A"}), "'A' is used for two things"),
    (rename(scops.matmul(), {"i": "k"}), "iterator name twice: k, j, k"),
    (replace(scops.matmul(), args=("A",)), "'B' is declared 'in' but is no argument"),
    (replace(scops.matmul(), results=()), "'C' is declared 'out' but is no result"),
    (replace(scops.matmul(), params=("M", "N")), "shape of 'A' uses more than the sizes M, N"),
])  # fmt: skip
def test_broken_scops_are_named(scop: Scop, message: str) -> None:
    with pytest.raises(ScopError, match=message):
        verify(scop)


def test_a_tree_that_forgets_instances_is_refused() -> None:
    scop = scops.matmul()
    assert isinstance(scop.tree, Band) and isinstance(scop.tree.child, Sequence)
    short = Sequence(scop.tree.child.filters[:1])
    with pytest.raises(ScopError, match="some instances of S1 would not run"):
        verify(scop.with_tree(Band(scop.tree.members, short)))
    with pytest.raises(ScopError, match="two instances of S0 would run at the same time"):
        verify(scop.with_tree(Band(scop.tree.members[:1], scop.tree.child)))


# ---- text, cache, quota ----------------------------------------------------------------------


def test_text_shows_domains_accesses_and_the_tree() -> None:
    text = print_scop(scops.matmul())
    for part in ("matmul(A, B) -> (C)", "in A: f32[M, K]", "C[i, j] + A[i, k] * B[k, j]", "(reduction +)",
                 "S1[i, j, k] -> B[k, j]", "for i", "└─", "├─"):  # fmt: skip
        assert part in text
    assert print_tree(scops.lu().tree) == print_tree(loads(dumps(scops.lu())).tree)


def test_the_cache_follows_the_object_not_its_address() -> None:
    calls: list[str] = []

    @per_scop
    def count(scop: Scop) -> int:
        calls.append(scop.name)
        return len(calls)

    scop = scops.lu()
    assert (count(scop), count(scop), len(calls)) == (1, 1, 1)
    for _ in range(20):  # freed Scops may be followed by others at their address
        count(scops.seidel())
    assert len(calls) == 21


@pytest.mark.parametrize("target", ["x86-64-v3", "sm_80"])
def test_what_compiling_asks_keeps_no_scop(target: str) -> None:
    """Processes that compile for days would grow: answers refer to their Scop, so the Scop carries them."""
    scop = specialise(scops.matmul(), {"M": 70, "N": 90, "K": 50})
    ended = weakref.ref(scop)
    compile_operator(scop, target, auto_schedule(scop, target))
    del scop
    gc.collect()
    assert ended() is None


def test_quota_stops_isl_and_recovers() -> None:
    from polyc.poly.dependences import conflicts

    with pytest.raises(QuotaExceeded, match="within 5 operations"):
        with quota(5):
            conflicts(scops.lu())
    assert conflicts(scops.lu()).ordered
    with quota(10_000_000):
        assert conflicts(scops.lu()).ordered


def test_a_number_without_a_text_is_a_spent_budget() -> None:
    """isl answers the last question before its budget ends with nothing: no error of Python's comes out."""
    points = isl.Set("[N] -> { [i, j] : 0 <= i < 5 and i <= j < 7 }")
    whole = 0
    for operations in range(1, 400):
        try:
            with quota(operations):
                low, high = points.dim_min_val(1), points.dim_max_val(1)
                whole += int(high.sub(low).to_python()) == 6
        except QuotaExceeded as error:
            assert error.spent
    assert whole > 0
    with pytest.raises(TypeError), quota(1000):
        len(5)  # type: ignore[arg-type]


def test_a_quota_inside_another_uses_up_both() -> None:
    def work(points: int) -> None:
        for k in range(points):
            isl.Set(f"{{ [i, j] : 0 <= i < 10 and 0 <= j < i + {k} }}").lexmin()

    taken, refused = 0, 0
    with pytest.raises(QuotaExceeded), quota(50_000):
        while True:
            try:
                with quota(10_000):
                    work(1000)
            except QuotaExceeded:
                refused += 1
            work(1)
            taken += 1
    assert taken in (3, 4) and refused == taken + 1, "each refused step has cost the outer quota its operations"
    with quota(5_000), pytest.raises(QuotaExceeded, match="within [1-4]"), quota(50_000):
        work(1000)
    work(1000)  # no limit is left behind


def test_index_helper_reads_python() -> None:
    assert [type(e).__name__ for e in walk(index("i + 2*j"))] == ["Binary", "Var", "Binary", "Const", "Var"]
