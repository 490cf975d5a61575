"""Contraction and promotion: every value crosses the edge of its buffer, or the check says which does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
import small_scops as scops
from small_scops import ref

from polyc.poly.dtypes import bool_, f32
from polyc.poly.errors import IllegalSchedule
from polyc.poly.expr import Binary, Const
from polyc.poly.legality import check, check_promotions
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Leaf, Node, Promote


def stages(reach: str = "i", kind: str = "local") -> Scop:
    """`for i: (t[i] = A[i]; B[i] = t[reach])`."""
    s0 = scops.stmt("S0", "S0[i] : 1 <= i < N", "t[i]", ref("A[i]"), ["N"])
    s1 = scops.stmt("S1", "S1[i] : 1 <= i < N", "B[i]", ref(f"t[{reach}]"), ["N"])
    tree = scops.band([s0, s1], ["i"], scops.seq(([s0], Leaf()), ([s1], Leaf())))
    arrays = {"A": ("N", "in"), "t": ("N", kind), "B": ("N", "out")}
    return scops.scop("stages", ["N"], arrays, [s0, s1], tree)


def promoted(scop: Scop, array: str = "t", copy_in: bool = False, copy_out: bool = False) -> Node:
    """A buffer for each iteration of the outer band."""
    band = scop.tree
    assert isinstance(band, Band)
    return Band(band.members, Promote(array, "buf", "register", band.child, None, copy_in, copy_out))


def test_a_value_used_in_its_own_iteration_needs_no_copies() -> None:
    scop = stages()
    check(scop, promoted(scop))


def test_a_value_used_in_the_next_iteration_is_lost() -> None:
    scop = stages("i-1")
    with pytest.raises(IllegalSchedule, match="buffer 'buf' is not filled with it") as error:
        check(scop, promoted(scop))
    w = error.value.witness
    assert w is not None
    assert (w.params, w.source, w.sink, w.touched) == ({"N": 3}, ("S0", (1,)), ("S1", (2,)), "t[1]")
    with pytest.raises(IllegalSchedule, match="is dropped before"):
        check(scop, promoted(scop, copy_in=True))
    with pytest.raises(IllegalSchedule, match="is not filled"):
        check(scop, promoted(scop, copy_out=True))
    check(scop, promoted(scop, copy_in=True, copy_out=True))


def test_results_go_back_to_the_caller() -> None:
    for kind in ("out", "inout"):
        scop = stages(kind=kind)
        with pytest.raises(IllegalSchedule, match="'t' goes back to the caller") as error:
            check(scop, promoted(scop))
        w = error.value.witness
        assert w is not None and w.why.startswith("the caller gets t[") and w.sink == ("the caller", ())
        check(scop, promoted(scop, copy_out=True))


def test_inputs_come_from_the_caller() -> None:
    scop = stages()
    with pytest.raises(IllegalSchedule, match="'A' holds values of the caller"):
        check(scop, promoted(scop, "A"))
    check(scop, promoted(scop, "A", copy_in=True))


def test_the_whole_of_a_value_that_is_overwritten_later_is_not_a_result() -> None:
    s0 = scops.stmt("S0", "S0[i] : 0 <= i < N", "B[i]", ref("A[i]"), ["N"])
    s1 = scops.stmt("S1", "S1[i_1] : 0 <= i_1 < N", "B[i_1]", Const(1.0, f32), ["N"])
    inner = Promote("B", "buf", "register", scops.band([s0], ["i"], Leaf()), None, False, False)
    tree = scops.seq(([s0], inner), ([s1], scops.band([s1], ["i_1"], Leaf())))
    scop = scops.scop("over", ["N"], {"A": ("N", "in"), "B": ("N", "out")}, [s0, s1], tree)
    check(scop, tree)
    shorter = replace(s1, domain=s1.domain.subtract(s1.domain.lexmin()))
    scop = replace(scop, statements={"S0": s0, "S1": shorter})
    assert check_promotions(scop, tree) is not None


def test_conditional_writes_need_the_old_value() -> None:
    positive = Binary(">", ref("A[i]"), Const(0.0, f32), bool_)
    s0 = scops.stmt("S0", "S0[i] : 0 <= i < N", "B[i]", ref("A[i]"), ["N"], predicate=positive)
    scop = scops.scop("maybe", ["N"], {"A": ("N", "in"), "B": ("N", "inout")}, [s0], scops.band([s0], ["i"], Leaf()))
    with pytest.raises(IllegalSchedule, match="under a condition only"):
        check(scop, promoted(scop, "B", copy_out=True))
    check(scop, promoted(scop, "B", copy_in=True, copy_out=True))


def test_an_accumulator_tile_is_kept_only_inside_the_whole_reduction() -> None:
    scop = scops.matmul()
    check(scop, promoted(scop, "C", copy_out=True))
    band = scop.tree
    assert isinstance(band, Band)
    s0, s1 = scop.statements.values()
    k = scops.band([s1], ["k"], Leaf())
    cut = Band(k.members, Promote("C", "buf", "register", Leaf(), None, False, True))
    tree = Band(band.members, scops.seq(([s0], Leaf()), ([s1], cut)))
    with pytest.raises(IllegalSchedule, match="not filled"):
        check(scop, tree)


def test_reading_the_neighbour_of_a_sum_is_a_real_flow() -> None:
    scop = scops.seidel()
    assert check_promotions(scop, promoted(scop, "A", copy_in=True)) is not None
