"""The automatic schedule: what it does to typical nests, that it is legal, quick and explained."""

from __future__ import annotations

import pytest
import scop_builder as sb

from polyc.frontend_dsl.library.convolution import make_depthwise
from polyc.poly.dtypes import f32
from polyc.poly.legality import check
from polyc.poly.quota import quota
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.poly.tree import Band, Promote, walk
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies import auto
from polyc.scheduler.strategies.auto import automatic, marked

CPU = Target("test", "x86_64-linux-gnu", "x86-64-v3", "", 256, 16, 32768, 1 << 20, 1 << 24, 64, 2, 4)


def run(scop: Scop, threads: int = 1) -> Schedule:
    s = automatic(scop, CPU, threads)
    check(s.scop, s.tree)
    assert str(Schedule.replay(scop, s.save())) == str(s)
    return s


def contracted(s: Schedule) -> dict[str, str]:
    return {n.array: n.space for n in walk(s.tree) if isinstance(n, Promote) and not n.copy_in and not n.copy_out}


def test_pointwise_chain_becomes_one_nest_without_intermediates() -> None:
    s = run(sb.chain())
    assert s.loops == ("i", "j") and marked(s, "vector") == ("j",)
    assert contracted(s) == {"t": "register"} and "u" not in s.scop.arrays


def test_rows_are_reduced_in_lanes() -> None:
    s = run(sb.rowsum(), threads=2)
    assert marked(s, "vector") == ("j",) and marked(s, "parallel") == ("i",)
    assert contracted(s) == {"s": "register"}


def test_column_sums_run_along_the_rows() -> None:
    scop = sb.build("colsum", ["N", "M"], {"A": "N,M", "y": "M"}, [
        sb.loop("j", "0", "M", [sb.loop("i", "0", "N", [sb.stmt("y[j] = y[j] + A[i,j]", "+")])]),
    ])  # fmt: skip
    s = run(scop)
    assert s.loops == ("i", "j") and marked(s, "vector") == ("j",)


def test_imperfect_nests_are_distributed_for_stride_one() -> None:
    scop = sb.build("p", ["N", "M"], {"A": "N,M", "y": "M"}, [
        sb.loop("j", "0", "M", [
            sb.stmt("y[j] = 0.0"),
            sb.loop("i", "0", "N", [sb.stmt("y[j] = y[j] + A[i,j]", "+")]),
        ]),
    ])  # fmt: skip
    s = run(scop, threads=2)
    assert "distribute" in [t.name for t in s.trace]
    assert set(marked(s, "vector")) == {"j.in", "j_1.in"}
    assert set(marked(s, "parallel")) == {"j.out", "j_1.out"}
    assert s.loops.index("j_1.out") < s.loops.index("i")


def test_local_scalars_keep_the_nest_whole_and_lanes_go_around() -> None:
    scop = sb.build("p", [], {"A": "64,32", "y": "64", "s": "64"}, [
        sb.loop("j", "0", "64", [
            sb.stmt("s[j] = 0.0"),
            sb.loop("i", "0", "32", [sb.stmt("s[j] = s[j] + A[i,j]", "+")]),
            sb.stmt("y[j] = s[j]"),
        ]),
    ], local=["s"])  # fmt: skip
    s = run(scop)
    assert s.loops == ("j", "i") and marked(s, "vector") == ("j",) and contracted(s) == {"s": "register"}


def test_time_loops_stay_outside() -> None:
    s = run(sb.jacobi(), threads=2)
    assert s.loops[0] == "t" and len(marked(s, "vector")) == 2


def test_recurrences_stay_serial_with_a_reason_and_sweeps_take_turns() -> None:
    s = run(sb.seidel(), threads=2)
    assert not marked(s, "vector") and any("stays serial" in n for n in s.notes)
    assert s.loops[-1] == "t.in" and marked(s, "unroll") == ("t.in",)


def test_without_reassociation_lanes_are_rows() -> None:
    """Each row adds up in its order."""
    from dataclasses import replace

    scop = replace(sb.rowsum(), reassociate=False)
    statements = {n: replace(s, reduction=None) for n, s in scop.statements.items()}
    s = run(replace(scop, statements=statements))
    assert marked(s, "vector") and all(name.startswith("i.in") for name in marked(s, "vector"))


def test_little_work_is_not_worth_threads() -> None:
    scop = sb.build(
        "p", [], {"A": "8,8"}, [sb.loop("i", "0", "8", [sb.loop("j", "0", "8", [sb.stmt("A[i,j] = 1.0")])])]
    )
    s = run(scop, threads=4)
    assert marked(s, "parallel") == () and any("too few" in n for n in s.notes)


def test_large_triple_nests_are_blocked() -> None:
    # A reduction whose operand is no plain product is no contraction for register tiles.
    scop = sb.build("p", ["N"], {"A": "N,N", "B": "N,N", "C": "N,N"}, [
        sb.loop("i", "0", "N", [sb.loop("k", "0", "N", [sb.loop("j", "0", "N", [
            sb.stmt("C[i,j] = C[i,j] + A[i,k] / B[k,j]", "+")])])]),
    ])  # fmt: skip
    s = run(scop)
    assert any(n.startswith("tile ") for n in s.notes) and marked(s, "vector") == ("j.in",)


def test_quota_leaves_the_last_legal_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    for operations in (1, 2000, 20000, 60000):
        monkeypatch.setattr(auto, "AUTOMATIC", operations)
        scop = sb.chain()
        s = automatic(scop, CPU, 2)
        check(s.scop, s.tree)
        if operations == 1:
            assert s.trace == () and "program order stands" in s.notes[-1]
    assert Schedule.start(scop).split("i", 4).loops  # isl works again


QUICK = 400_000  # isl operations


@pytest.mark.parametrize("make", [sb.matmul, sb.lu, sb.jacobi, sb.seidel, sb.rowsum, sb.chain])
@pytest.mark.parametrize("threads", [1, 2])
def test_legal_quick_and_deterministic(make, threads: int) -> None:
    with quota(QUICK):
        first = run(make(), threads)
    assert not any("quota" in note for note in first.notes)
    again = run(make(), threads)
    assert again.save() == first.save() and again.notes == first.notes


def test_vector_loops_are_leaves_of_parallelism() -> None:
    """Never two vector loops in one nest."""
    for make in (sb.matmul, sb.lu, sb.chain, sb.rowsum):
        s = run(make(), 2)
        for n in walk(s.tree):
            if isinstance(n, Band) and any(m.kind == "vector" for m in n.members):
                below = [m for c in walk(n.child) if isinstance(c, Band) for m in c.members]
                assert not any(m.kind == "vector" for m in below)


def test_a_nest_takes_the_order_of_the_one_that_it_feeds() -> None:
    """A batch of padded planes: the contraction has its channels outermost, so a plane at a time is padded."""
    for batch in (1, 2):
        scop = make_depthwise(f32, batch, 8, (30, 30), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), True).scop()
        assert "P" in contracted(run(scop))
