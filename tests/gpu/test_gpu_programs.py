"""The schedules of scans and of rows that stay in a block are programs of public steps: legal and right after each
step, replayed from their text, and applied by hand."""

# The annotations are the DSL's array types, which mypy reads as its own.
# mypy: disable-error-code="valid-type, misc, index, operator, attr-defined, has-type, arg-type"

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simt
from back_ends import difference, interpret

from polyc import dims, empty, f32, grid, inout, op, zeros
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.json_io import dump_tree
from polyc.scheduler.programs import keep_rows, rows_per_block, scan_panels, tile_product
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

B, M, N = dims("B M N")


@op
def two_scans(X: f32[B, M, N]) -> f32[B, M, N]:
    Y = empty((B, M, N), f32)
    for b, i in grid(B, M):
        Y[b, i, 0] = X[b, i, 0]
        for j in range(1, N):
            Y[b, i, j] = Y[b, i, j - 1] + X[b, i, j]
        for j in range(1, N):
            Y[b, i, N - 1 - j] = Y[b, i, N - j] - Y[b, i, N - 1 - j]
    return Y


@op
def in_place(X: inout(f32[M, N])):
    for i in range(M):
        for j in range(1, N):
            X[i, j] = X[i, j - 1] + X[i, j]


@op
def from_row_to_row(X: inout(f32[M, N])):
    for i in range(1, M):
        for j in range(1, N):
            X[i, j] = X[i, j - 1] + X[i - 1, j]


@op
def minus_sum(X: inout(f32[M, N]), W: f32[N]):
    for i in range(M):
        s = f32(0)
        for j in range(N):
            s += X[i, j] * W[j]
        for j in range(N):
            X[i, j] = X[i, j] - s * W[j]


@op
def backwards_and_transposed(X: f32[N, M], W: f32[N, B]) -> f32[M, B]:
    R = zeros((M, B), f32)
    for k in range(N - 1, -1, -1):
        for j in range(B):
            for i in range(M):
                R[i, j] += W[k, j] * X[k, i]
    return R


SIZES = {"B": 2, "M": 35, "N": 70}
AUTOMATIC = {"scans of 32 rows in panels": two_scans, "the row of X, W stays in the block": minus_sum}


def arguments(operator: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    shapes = [[SIZES[str(d)] for d in p.shape] for p in operator.signature.params]
    return [rng.integers(-2, 3, shape).astype("f4") for shape in shapes]


def wanted(operator: Any) -> list[np.ndarray]:
    """The updated arrays as plain Python leaves them."""
    args = [a.copy() for a in arguments(operator)]
    made = operator.python(*args)
    return args[:1] if made is None else [made]


@pytest.mark.parametrize("run", ["the last", pytest.param("a third", marks=pytest.mark.long)])
@pytest.mark.parametrize("said", AUTOMATIC)
def test_every_prefix_is_legal_and_right(said: str, run: str) -> None:
    operator = AUTOMATIC[said]
    automatically = automatic(operator.scop(), simt.TARGET)
    assert any(said in note for note in automatically.notes)
    s = Schedule.start(automatically.original)
    for k, step in enumerate(automatically.trace):
        assert step.name != "set_order"
        s = getattr(s, step.name)(**step.args)
        if run == "the last" or k % 3 != len(automatically.trace) % 3:
            continue  # running takes most of the time; the last one is run below
        got = interpret(s.scop, s.tree, arguments(operator), shuffle=1)
        assert not difference(got, wanted(operator), signs=False), step
    assert dump_tree(s.tree) == dump_tree(automatically.tree)
    assert simt.agree(s, arguments(operator), wanted(operator)) == ""


@pytest.mark.parametrize("said", AUTOMATIC)
def test_the_text_makes_it_again(said: str) -> None:
    scop = AUTOMATIC[said].scop()
    automatically = automatic(scop, simt.TARGET)
    space: dict[str, Any] = {"operator": type("Operator", (), {"scop": staticmethod(lambda **_: Start(scop))})}
    exec(automatically.program("operator"), space)
    assert dump_tree(space["s"].tree) == dump_tree(automatically.tree)


class Start:
    """What a program's text begins with."""

    def __init__(self, scop: Any) -> None:
        self.schedule = lambda: Schedule.start(scop)


def test_a_scan_without_other_statements_by_hand() -> None:
    s = scan_panels(Schedule.start(in_place.scop()), "i", ["j"], rows=16, panel=8)
    assert s.loops == ("i.out", "j.out", "i.in", "j.in")
    assert [t.name for t in s.trace] == ["split", "split", "permute", "promote", "bind", "bind"]
    assert simt.agree(s, arguments(in_place), wanted(in_place)) == ""


def test_scans_with_a_loop_around_by_hand() -> None:
    s = scan_panels(Schedule.start(two_scans.scop()), "i", ["j", "j_1"], 8, 16, ["b"])
    assert s.loops == ("b", "i.out", "i.in", "j.out", "i.in_1", "j.in", "j_1.out", "i.in_2", "j_1.in")
    assert str(s.tree).count("promote Y") == 2 and "Y_buf_1" in str(s.tree)
    assert simt.agree(s, arguments(two_scans), wanted(two_scans)) == ""


def test_scans_in_panels_are_refused() -> None:
    with pytest.raises(IllegalSchedule):
        scan_panels(Schedule.start(from_row_to_row.scop()), "i", ["j"])
    with pytest.raises(ScheduleError, match="scan_panels takes 2 loops beside the rows at most, not 3"):
        scan_panels(Schedule.start(two_scans.scop()), "i", ["j"], others=["b", "c", "d"])
    with pytest.raises(ScheduleError, match="no loop 'k'"):
        scan_panels(Schedule.start(in_place.scop()), "i", ["k"])


def test_rows_kept_by_hand() -> None:
    start = Schedule.start(minus_sum.scop()).bind("i", "block.x")
    s = keep_rows(start, "i", ["W", "X"], fill=True, where="N <= 64")
    assert [t.name for t in s.trace] == ["bind", "version", "promote", "promote"]
    assert "promote X[i : 1, 0 : 64] to shared X_buf (copy in, copy out)" in str(s.tree)
    assert s.loops == ("i", "j", "j_1", "i_1", "j_2", "j_1_1")
    assert simt.agree(s, arguments(minus_sum), wanted(minus_sum)) == ""
    with pytest.raises(IllegalSchedule):
        keep_rows(start, "i", ["X"], where="N <= 64")  # what is read is not copied in
    with pytest.raises(ScheduleError, match="for sizes that do not fulfil 'N >= 0': one version is enough"):
        keep_rows(start, "i", ["X"], fill=True, where="N >= 0")


@pytest.mark.parametrize(
    "said", [{}, {"threads": 32}, {"threads": 64, "warps": False}, {"along": ["j", "j_1"]}], ids=str
)
def test_a_row_for_each_block_by_hand(said: dict[str, Any]) -> None:
    s = rows_per_block(Schedule.start(minus_sum.scop()), "i", **said)
    assert "block.x" in str(s) and str(s).count("thread.x") >= 3
    assert simt.agree(s, arguments(minus_sum), wanted(minus_sum)) == ""
    kept = keep_rows(s, "i", "X", fill=True, where="N <= 96")
    assert simt.agree(kept, arguments(minus_sum), wanted(minus_sum)) == ""


def test_rows_for_blocks_are_refused() -> None:
    with pytest.raises(IllegalSchedule) as illegal:
        rows_per_block(Schedule.start(from_row_to_row.scop()), "i")
    assert "\n" not in str(illegal.value)
    start = Schedule.start(minus_sum.scop())
    for rows, said, why in [
        ((), {}, "one to 3 loops over rows, not 0"), (("j",), {}, "no loop goes along the rows of j"),
        (("i",), {"along": "k"}, "'k' is no loop inside i"), (("i",), {"threads": 0}, "must be a positive integer"),
    ]:  # fmt: skip
        with pytest.raises(ScheduleError, match=why) as error:
            rows_per_block(start, *rows, **said)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("said", [
    {"rows": 32, "columns": 32, "depth": 16, "thread": (2, 4)}, {"rows": 8, "columns": 64, "thread": (4, 8)},
    {"rows": 16, "columns": 16, "thread": (2, 4), "row": "j", "column": "i"},
], ids=str)  # fmt: skip
def test_a_product_in_blocks_and_threads_by_hand(said: dict[str, Any]) -> None:
    s = tile_product(Schedule.start(backwards_and_transposed.scop()), **said)
    assert "to shared" in str(s.tree) and "thread.y" in str(s)
    assert simt.agree(s, arguments(backwards_and_transposed), wanted(backwards_and_transposed)) == ""
