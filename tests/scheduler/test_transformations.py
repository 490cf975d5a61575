"""Each transformation: the tree before and after, and what is refused with which words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product

import pytest
import scop_builder as sb

from polyc import dims, f32, inout, op
from polyc.poly.errors import IllegalSchedule, ScheduleError
from polyc.poly.forms.conditions import Condition
from polyc.poly.json_io import dump_tree
from polyc.poly.legality import check
from polyc.poly.tree import Band, Promote, walk
from polyc.scheduler.schedule import STEPS, Schedule
from polyc.scheduler.texts.size_expr import size_condition


def start(make) -> Schedule:
    return Schedule.start(make())


def text(s: Schedule) -> str:
    """The tree with the statements' names only."""
    return "\n".join(re.sub(r"(S\d+): .*", r"\1", line).rstrip() for line in str(s.tree).splitlines())


def picture(drawing: str) -> str:
    lines = [line for line in drawing.splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[indent:] for line in lines)


def test_program_order() -> None:
    assert text(start(sb.matmul)) == picture("""
        ┌ for i
        └ for j
        └─ sequence
           ├─ S0
           └─ for k
              └─ S1
    """)


def test_split() -> None:
    assert text(start(sb.seidel).split("i", 4)) == picture("""
        ┌ for t
        │ for i.out = i // 4
        └ for i.in = i % 4
        └─ S0
    """)
    assert start(sb.seidel).split("i", 8).split("i.in", 2).loops == ("t", "i.out", "i.in.out", "i.in.in")


def test_split_hands_marks_to_the_right_part() -> None:
    s = start(sb.chain).parallel("i").split("i", 4).vectorize("j", 8).split("j", 32)
    kinds = {m.name: m.kind for n in walk(s.tree) if isinstance(n, Band) for m in n.members}
    assert (kinds["i.out"], kinds["i.in"], kinds["j.out"], kinds["j.in"]) == ("parallel", "serial", "serial", "vector")


def test_strip_mine_keeps_the_values() -> None:
    assert text(start(sb.seidel).strip_mine("i", 4)) == picture("""
        ┌ for t
        │ for i.out = i // 4
        └ for i.in = i
        └─ S0
    """)


def test_tile_sinks_the_initialisation() -> None:
    assert text(start(sb.matmul).tile(["i", "j", "k"], [64, 32, 16])) == picture("""
        ┌ for i.out = i // 64
        │ for j.out = j // 32
        └ for k.out = 0 for S0, k // 16 for S1
        └─ ┌ for i.in = i % 64
           │ for j.in = j % 32
           └ for k.in = 0 for S0, k % 16 for S1
           └─ sequence
              ├─ S0
              └─ S1
    """)


def test_tile_of_some_loops_leaves_the_others() -> None:
    s = start(lambda: sb.matmul(split_init=True)).tile(["j", "k"], [8, 4])
    assert s.loops == ("i0", "j0", "i", "j.out", "k.out", "j.in", "k.in")


def test_the_schedule_of_the_design_page() -> None:
    s = start(sb.matmul).tile(["i", "j", "k"], [64, 64, 64])
    s = s.interchange("j.in", "k.in").parallel("i.out").vectorize("j.in", 16)
    assert s.loops == ("i.out", "j.out", "k.out", "i.in", "k.in", "j.in")
    assert [t.name for t in s.trace] == ["tile", "interchange", "parallel", "vectorize"]


def test_interchange_sinks_through_imperfect_nests() -> None:
    assert text(start(sb.matmul).interchange("j", "k")) == picture("""
        ┌ for i
        └ for k = 0 for S0, k for S1
        └─ for j
           └─ sequence
              ├─ S0
              └─ S1
    """)


def test_statements_after_a_loop_sink_to_its_last_iteration() -> None:
    with pytest.raises(IllegalSchedule) as error:
        start(sb.lu).interchange("k", "i")
    witness = error.value.witness
    assert witness is not None and witness.array == "A"
    s = start(sb.rowsum).interchange("i", "j")
    assert "M - 1 for S2" in str(s)


def test_permute() -> None:
    s = start(lambda: sb.matmul(split_init=True)).permute("k", "i", "j")
    assert s.loops == ("i0", "j0", "k", "i", "j")
    assert s.loops == start(lambda: sb.matmul(split_init=True)).permute(["k", "i", "j"]).loops


def test_reverse() -> None:
    assert "for i = -i" in str(start(sb.chain).reverse("i"))
    with pytest.raises(IllegalSchedule):
        start(sb.seidel).reverse("i")


def test_skew_makes_the_time_loop_of_a_stencil_movable() -> None:
    with pytest.raises(IllegalSchedule):
        start(sb.seidel).interchange("t", "i")
    s = start(sb.seidel).skew("i", "t", 2).interchange("t", "i")
    assert text(s) == picture("""
        ┌ for i = 2 * t + i
        └ for t
        └─ S0
    """)


def test_shift_and_fuse() -> None:
    with pytest.raises(IllegalSchedule):
        start(sb.jacobi).fuse("i", "j")
    assert text(start(sb.jacobi).fuse("i", "j", shift=1)) == picture("""
        for t
        └─ for i = i for S0, j + 1 for S1
           └─ sequence
              ├─ S0
              └─ S1
    """)
    auto = start(sb.jacobi).fuse("i", "j", shift="auto")
    assert auto.trace[-1].args["shift"] == 1
    with pytest.raises(IllegalSchedule):
        auto.shift("i", -1, "S1")


def test_fuse_keeps_the_first_name() -> None:
    s = start(sb.chain).fuse("i", "i_1").fuse("j", "j_1")
    assert s.loops == ("i", "j", "i_2", "j_2")


def test_no_constant_shift() -> None:
    def backwards():
        return sb.build("p", ["N"], {"A": "N", "B": "N"}, [
            sb.loop("i", "0", "N", [sb.stmt("A[i] = B[i]")]),
            sb.loop("j", "0", "N", [sb.stmt("B[j] = A[N - 1 - j]")]),
        ])  # fmt: skip

    with pytest.raises(IllegalSchedule, match="no constant shift"):
        start(backwards).fuse("i", "j", shift="auto")


def test_distribute() -> None:
    assert text(start(sb.matmul).distribute("i")) == picture("""
        sequence
        ├─ ┌ for i
        │  └ for j
        │  └─ S0
        └─ ┌ for i_1 = i
           └ for j_1 = j
           └─ for k
              └─ S1
    """)
    assert start(sb.matmul).distribute("j").loops == ("i", "j", "j_1", "k")
    with pytest.raises(IllegalSchedule):
        start(sb.jacobi).distribute("t")


def test_distribute_undoes_fuse() -> None:
    s = start(sb.chain).fuse("i", "i_1").distribute("i")
    assert s.loops == start(sb.chain).loops


def test_reorder_statements() -> None:
    s = start(sb.chain)
    with pytest.raises(IllegalSchedule):
        s.reorder_statements(["S1", "S0"])

    def independent():
        return sb.build("p", ["N"], {"A": "N", "B": "N"}, [
            sb.loop("i", "0", "N", [sb.stmt("A[i] = 1.0"), sb.stmt("B[i] = 2.0")]),
        ])  # fmt: skip

    after = text(start(independent).reorder_statements(["S1", "S0"]))
    assert after.index("S1") < after.index("S0")


def test_marks() -> None:
    s = start(sb.rowsum)
    assert "[parallel]" in str(s.parallel("i"))
    with pytest.raises(IllegalSchedule):
        s.parallel("j")
    assert "[vector 8]" in str(s.vectorize("j", 8))  # a reduction may be reordered
    assert "[unroll 4]" in str(s.unroll("j", 4))
    with pytest.raises(IllegalSchedule):
        start(sb.seidel).vectorize("i", 4)


def test_serial_takes_any_mark_away() -> None:
    s = start(sb.matmul)
    for marked in (s.parallel("i"), s.vectorize("i", 8), s.unroll("i", 4), s.bind("i", "block.y")):
        assert str(marked) != str(s) and str(marked.serial("i")) == str(s)
    several = s.bind("i", "block.x").bind("j", "thread.x").serial("*")
    assert str(several) == str(s) and [t.name for t in several.trace][-3:] == ["serial"] * 3
    assert "[vector 4]" in str(s.vectorize("j", 8).serial("j").vectorize("i", 4))
    again = Schedule.replay(s.scop, several.save())
    assert str(again) == str(several)


def test_version() -> None:
    s = start(sb.rowsum).promote("A", "j")
    t = s.version("i", "M <= 2 * N").parallel("i")
    assert text(t) == picture("""
        sequence
        ├─ for i [parallel]   if M <= 2 * N
        │  └─ sequence
        │     ├─ S0
        │     ├─ for j
        │     │  └─ promote A[i : 1, j : 1] to local A_buf (copy in)
        │     │     └─ S1
        │     └─ S2
        └─ for i_1 = i   if 2 * N < M
           └─ sequence
              ├─ S0
              ├─ for j_1 = j
              │  └─ promote A[i_1 : 1, j_1 : 1] to local A_buf_1 (copy in)
              │     └─ S1
              └─ S2
    """)
    check(t.scop, t.tree)
    assert text(Schedule.replay(t.scop, t.save())) == text(t)
    inner = start(sb.rowsum).version("j", "M <= 3 or not M != 7")
    assert "for j   if M <= 3 or M == 7" in text(inner)
    check(inner.scop, inner.tree)


CONDITIONS = ["N <= 4096", "2 <= N < M", "N % 8 == 0 and M < 2*N", "N // 3 + M >= 5 or N == M", "not N > M and M != 3",
              "min(N, M) <= 3", "-N < -2", "N - M == 4 or (M % 2 == 1 and N >= 7)"]  # fmt: skip


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_condition_on_sizes_means_what_python_means(where: str) -> None:
    scop = sb.rowsum()
    found = size_condition(scop, where)
    printed = size_condition(scop, str(Condition(found, scop.context)))
    assert printed.intersect(scop.context).is_equal(found.intersect(scop.context))
    for n, m in product(range(1, 20), range(1, 12)):
        assert Condition(found, scop.context).holds(N=n, M=m) == eval(where, {"N": n, "M": m, "min": min})


@pytest.mark.parametrize("name", ["lambda", "True", "not", "is"])
def test_sizes_with_names_that_python_keeps(name: str) -> None:
    size = dims(name)

    @op
    def ones(A: inout(f32[size])):
        for i in range(size):
            A[i] = 1.0

    s = ones.scop().schedule()
    two = s.version("i", f"{name} <= 9")
    assert f"for i   if {name} <= 9" in str(two)
    assert str(Schedule.from_yaml(s.scop, two.to_yaml())) == str(two)
    assert f"for i   if i < {name} - 2" in str(s.index_split("i", f"{name} - 2"))


@pytest.mark.parametrize(
    "name, why",
    [("A", "an array has that name"), ("y", "an array has that name"), ("s", "an array has that name"),
     ("s_buf", "the buffer of 'A' has that name"), ("two words", "that is no name")],
)  # fmt: skip
def test_names_of_buffers_in_a_given_tree(name: str, why: str) -> None:
    s = start(sb.rowsum).promote("A", "i").contract("s")
    tree = dump_tree(s.tree).replace("A_buf", name)
    with pytest.raises(ScheduleError, match=f"the buffer of '[As]' cannot be called '{name}': {why}"):
        start(sb.rowsum).set_order(tree)
    with pytest.raises(ScheduleError, match=f"cannot be called '{name}': {why}"):
        Schedule.from_yaml(s.scop, s.to_yaml().replace("A_buf", name))


def test_contract_at_the_deepest_place() -> None:
    assert text(start(sb.rowsum).contract("s")) == picture("""
        for i
        └─ contract s[i : 1] to register s_buf
           └─ sequence
              ├─ S0
              ├─ for j
              │  └─ S1
              └─ S2
    """)
    s = start(sb.chain).fuse("i", "i_1").fuse("j", "j_1").contract("t")
    assert next(n for n in walk(s.tree) if isinstance(n, Promote)).space == "register"
    rows = start(sb.chain).fuse("i", "i_1").contract("t")
    assert next(n for n in walk(rows.tree) if isinstance(n, Promote)).space == "heap"


def test_contract_refuses_what_is_used_elsewhere() -> None:
    with pytest.raises(ScheduleError, match="no common loop"):
        start(sb.chain).contract("t")
    with pytest.raises(ScheduleError, match="not local"):
        start(sb.chain).contract("A")


def test_promote() -> None:
    s = start(sb.matmul).promote("C", "j", "register")
    node = next(n for n in walk(s.tree) if isinstance(n, Promote))
    assert (node.array, node.copy_out, node.space) == ("C", True, "register")
    assert not next(n for n in walk(start(sb.matmul).promote("A", "k").tree) if isinstance(n, Promote)).copy_out


def test_set_order_takes_any_legal_tree() -> None:
    s = start(sb.matmul).tile(["i", "j"], [4, 4])
    again = Schedule.start(s.scop).set_order(dump_tree(s.tree))
    assert text(again) == text(s)
    backwards = start(sb.seidel)
    tree = dump_tree(start(sb.seidel).skew("i", "t", 2).interchange("t", "i").tree)
    assert backwards.set_order(tree).loops == ("i", "t")


def test_batch_checks_the_end_only() -> None:
    s = start(sb.seidel).batch(("reverse", {"loop": "i"}), ("reverse", {"loop": "i"}))
    assert [t.name for t in s.trace] == ["reverse", "reverse"]
    with pytest.raises(IllegalSchedule):
        start(sb.seidel).batch(("reverse", {"loop": "i"}))


def test_refusals_say_what_would_help() -> None:
    with pytest.raises(IllegalSchedule, match=r"; shift=1 makes it legal$"):
        start(sb.jacobi).fuse("i", "j")
    with pytest.raises(IllegalSchedule, match=r"; after skew\('i', 't', 1\) it is legal$"):
        start(sb.seidel).tile(["t", "i"], [4, 4])
    with pytest.raises(IllegalSchedule) as error:
        replace(start(sb.jacobi), terse=True).fuse("i", "j")
    assert "makes it legal" not in str(error.value)


# ---- trace -------------------------------------------------------------------------------------


def test_schedules_are_immutable_and_replay() -> None:
    s0 = start(sb.matmul)
    before = text(s0)
    s = s0.tile(["i", "j"], [8, 8]).unroll("i.in").split("k", 4).permute("j.in", "i.in").promote("A", "k.out")
    assert text(s0) == before and s0.trace == ()
    again = Schedule.replay(s0.scop, s.save())
    assert text(again) == text(s) and again.trace == s.trace
    assert [json.loads(line)["do"] for line in s.save().splitlines()] == [
        "tile",
        "unroll",
        "split",
        "permute",
        "promote",
    ]


def test_every_step_can_be_replayed() -> None:
    assert all(callable(getattr(Schedule, name)) for name in STEPS)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 1 of the trace is not a step: nonsense"),
        ('{"loop": "i"}', 'line 1 of the trace is not a step: {"loop": "i"}'),
        ("[1]", "line 1 of the trace is not a step: [1]"),
        ('{"do": "save"}', "line 1 of the trace: no transformation 'save'"),
        ('{"do": ["split"]}', "line 1 of the trace: no transformation '['split']'"),
        (
            '{"do": "split", "loop": "i"}',
            'line 1 of the trace: wrong arguments for split: {"do": "split", "loop": "i"}',
        ),
    ],
)
def test_bad_traces(line: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        Schedule.replay(sb.matmul(), line + "\n")
    assert str(error.value) == message


# ---- structural nonsense -----------------------------------------------------------------------

NONSENSE = [
    (lambda s: s.split("x", 4), "no loop 'x': the loops are i, j, k"),
    (lambda s: s.split("i", 0), "the block size of loop 'i' must be a positive integer, not 0"),
    (lambda s: s.split("i", 2.5), "the block size of loop 'i' must be a positive integer, not 2.5"),
    (lambda s: s.tile(["i", "j"], [4]), "tile needs one size a loop: 2 loops, 1 size"),
    (lambda s: s.tile(["i", "i"], [4, 4]), "tile names a loop twice: i, i"),
    (lambda s: s.tile(["i", "k"], [4, 4]), "tile needs neighbouring loops: j lies between i, k (interchange first)"),
    (lambda s: s.interchange("i", "i"), "interchange needs two different loops, not 'i' twice"),
    (lambda s: s.permute("i"), "permute needs two or more different loops, not: i"),
    (lambda s: s.skew("i", "i", 1), "loop 'i' cannot be skewed by itself"),
    (lambda s: s.skew("j", "i", 1.5), "the skew factor must be an integer, not 1.5"),
    (lambda s: s.shift("k", 1, ["S0"]), "no statement 'S0' in loop 'k': the statements there are S1"),
    (lambda s: s.fuse("i", "i"), "fuse needs two different loops, not 'i' twice"),
    (lambda s: s.fuse("i", "k"), "loop 'i' is not the outermost loop of one part of a sequence"),
    (lambda s: s.distribute("k"), "loop 'k' has one part only: nothing to distribute"),
    (lambda s: s.vectorize("j", 0), "the factor of loop 'j' must be a positive integer, not 0"),
    (lambda s: s.serial("z"), "no loop 'z': the loops are i, j, k"),
    (lambda s: s.serial(3), "a loop is addressed by its name, not by 3"),
    (lambda s: s.vectorize("j", 4).parallel("j"), "loop 'j' is already vectorised"),
    (lambda s: s.parallel("i").parallel("j"), "loop 'j' cannot be parallel: loop 'i' of the nest is already"),
    (lambda s: s.promote("Z", "i"), "no array 'Z': the arrays are A, B, C"),
    (lambda s: s.promote("C", "i").promote("C", "j", copy_out=False),
     "array 'C': 'C_buf' is copied out, but this one, inside of it, is not (copy_out=False): what is written would not "
     "reach it"),
    (lambda s: s.promote("A", "i", "disk"), "no memory space 'disk': the spaces are register, local, shared, heap"),
    (lambda s: s.contract("C"), "array 'C' is not local: only local arrays can be contracted"),
    (lambda s: s.index_split("i", "M * N"), "'M * N' is no affine expression of the sizes (sizes: M, N, K)"),
    (lambda s: s.index_split("i", "Q"), "'Q' is no affine expression of the sizes (sizes: M, N, K)"),
    (lambda s: s.index_split("i", 1.5), "a position is an integer or text such as 'N // 2', not 1.5"),
    (lambda s: s.index_split("i", 0), "loop 'i' has no iteration below 0: nothing to split"),
    (lambda s: s.index_split("i", "M"), "loop 'i' has no iteration from M: nothing to split"),
    (lambda s: s.index_split("i", 10**9999), "a position is at most 1099511627776: 64 bits overflow"),
    (lambda s: s.index_split("i", "9" * 30), f"'{'9' * 30}' has numbers beyond 1099511627776: 64 bits overflow"),
    (lambda s: s.index_split("i", "M * 3000000 * 3000000"),
     "'M * 3000000 * 3000000' has numbers beyond 1099511627776: 64 bits overflow"),
    (lambda s: s.index_split("i", "-" * 50000 + "M"),
     f"'{'-' * 57}...' is no affine expression of the sizes (sizes: M, N, K)"),
    (lambda s: s.version("i", "M * N < 4"), "'M * N < 4' is no affine condition on the sizes (sizes: M, N, K)"),
    (lambda s: s.version("i", "M"), "'M' is no affine condition on the sizes (sizes: M, N, K)"),
    (lambda s: s.version("i", "i < 4"), "'i < 4' is no affine condition on the sizes (sizes: M, N, K)"),
    (lambda s: s.version("i", "M in N"), "'M in N' is no affine condition on the sizes (sizes: M, N, K)"),
    (lambda s: s.version("i", "not " * 50000 + "M < 4"),
     f"'{('not ' * 15)[:57]}...' is no affine condition on the sizes (sizes: M, N, K)"),
    (lambda s: s.version("i", 4), "a condition on sizes is text such as 'N <= 4096', not 4"),
    (lambda s: s.version("i", "M < 2**40"), "'M < 2**40' is no affine condition on the sizes (sizes: M, N, K)"),
    (lambda s: s.version("i", "M < 2000000000000"),
     "'M < 2000000000000' has numbers beyond 1099511627776: 64 bits overflow"),
    (lambda s: s.version("i", "M >= 0"),
     "loop 'i' has no iteration for sizes that do not fulfil 'M >= 0': one version is enough"),
    (lambda s: s.version("i", "M < 1"),
     "loop 'i' has no iteration for sizes that fulfil 'M < 1': one version is enough"),
    (lambda s: s.version("i", "M < 9").version("k", "M < 9"),
     "loop 'k' has no iteration for sizes that do not fulfil 'M < 9': one version is enough"),
    (lambda s: s.version("z", "M < 9"), "no loop 'z': the loops are i, j, k"),
    (lambda s: s.peel("i", 0, 0), "peel needs some first or last iterations to peel"),
    (lambda s: s.peel("i", -1), "the number of first iterations cannot be negative (-1)"),
    (lambda s: s.split("k", 4).peel("k.in", 2, 2), "nothing would be left of loop 'k.in'"),
    (lambda s: s.unroll_and_jam("k", 2), "loop 'k' has no loop inside to jam into: unroll it"),
    (lambda s: s.unroll_and_jam("i", 0), "the factor of loop 'i' must be a positive integer, not 0"),
    (lambda s: s.unroll("i", 2).unroll_and_jam("i", 2), "loop 'i' is marked unroll already"),
    (lambda s: s.promote("C", "j", "shared").bind("i", "thread.x"),
     "array 'C' cannot be in shared memory inside loop 'i', whose iterations are threads: S0 writes it there "
     "(promote it outside of that loop)"),
    (lambda s: s.bind("i", "thread.x").promote("C", "j", "shared"),
     "array 'C' cannot be in shared memory inside loop 'i', whose iterations are threads: S0 writes it there "
     "(promote it outside of that loop)"),
    (lambda s: s.bind("i", "warp"),
     "no GPU axis 'warp': the axes are block.x, block.y, block.z, thread.x, thread.y, thread.z"),
    (lambda s: s.bind("i", "block.x").bind("j", "block.x"),
     "loop 'j' cannot be bound to block.x: loop 'i' of the nest is already"),
    (lambda s: s.bind("j", "block.x").bind("i", "thread.x"),
     "loop 'i' cannot be bound to thread.x: loop 'j' is bound to block.x, "
     "and loops over blocks go outside loops over threads"),
    (lambda s: s.bind("i", "block.x").parallel("j"),
     "loop 'j' cannot be parallel: loop 'i' of the nest is bound to block.x"),
    (lambda s: s.promote("A", "k", layout=[0]), "layout [0] names each of the 2 dimensions of 'A' once"),
    (lambda s: s.promote("A", "k", layout=[(0, 1)]),
     "a layout is a list of dimensions or of (dimension, divisor, modulus) triples"),
    (lambda s: s.promote("A", "j", layout=[(0, 1, 0), (1, 2, 0)]),
     "the layout ((0, 1, 0), (1, 2, 0)) of buffer 'A_buf' gives two elements one place"),
    (lambda s: s.promote("A", "j", layout=[(0, 1, 0), (2, 1, 0)]),
     "the layout ((0, 1, 0), (2, 1, 0)) of buffer 'A_buf' does not fit: 'A' has 2 dimensions"),
    (lambda s: s.inline("Z"), "no array 'Z': the arrays are A, B, C"),
    (lambda s: s.inline("A"), "array 'A' is not written: nothing to inline"),
    (lambda s: s.inline("C"), "cannot inline 'C': S1 computes it from its own values"),
    (lambda s: s.rfactor("i"), "loop 'i' runs over no reduction"),
    (lambda s: s.promote("C", "i").rfactor("k"), "array 'C' is promoted already: rfactor first"),
    (lambda s: s.peel("k").rfactor("k"), "some instances of S1 run outside of loop 'k'"),
    (lambda s: s.peel("k").reorder_statements(["S0", "S1"]),
     "S1 is in several parts of the sequence: name a loop of the part that is meant"),
    (lambda s: s.reorder_statements(["S0"]), "reorder_statements needs two or more different statements, not: S0"),
    (lambda s: s.reorder_statements(["S0", "S9"]), "statements S0, S9 are not neighbours in one sequence"),
    (lambda s: s.tile(["i", "j"], [4, 4]).split("i.out", 2).split("i.in", 2).tile(["i.out.out", "j.out"], [2, 2]),
     "tile needs neighbouring loops: i.out.in lies between i.out.out, j.out (interchange first)"),
]  # fmt: skip


@pytest.mark.parametrize(("do", "message"), NONSENSE, ids=[m for _, m in NONSENSE])
def test_structural_nonsense(do, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        do(start(sb.matmul))
    assert str(error.value) == message and not isinstance(error.value, IllegalSchedule)


def test_loops_of_different_nests() -> None:
    with pytest.raises(ScheduleError, match="loops 'i' and 'j_1' are not nested in one another"):
        start(sb.chain).interchange("i", "j_1")
    with pytest.raises(ScheduleError, match="loop 'i_2' does not directly follow loop 'i'"):
        start(sb.chain).fuse("i", "i_2")
    with pytest.raises(ScheduleError, match="inside a common loop"):
        start(sb.chain).fuse("i", "i_1").reorder_statements(["S2", "S0", "S1"])
