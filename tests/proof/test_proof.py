"""The proof of the loops: no false alarm, and each rule by an example."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mutant_oracle import TARGET, Case
from parts import in_part
from proof_cases import by_hand, guarded, library, matmul, of_library, of_polybench, of_random_programs
from random_programs import generate
from random_schedules import random_schedule

from examples import polybench
from polyc import dims, empty, f32, f64, inout, op
from polyc.emit.interpreter import interp
from polyc.emit.loop_ir.loops import Alloc, Block, For, Function, If, Stmt, Store, walk
from polyc.emit.loop_ir.printer import expr_text
from polyc.emit.loop_ir.rewrite import unique_names, with_bodies
from polyc.emit.lowering import lower
from polyc.emit.lowering.lower import build_loops
from polyc.emit.passes.simplify import simplify
from polyc.emit.passes.tiles import separate_tiles
from polyc.emit.passes.unroll import unroll
from polyc.emit.proof import proven as entry
from polyc.emit.proof.proven import prove, proven
from polyc.emit.proof.read_back import WrongLoops
from polyc.frontend_dsl.library import pooling
from polyc.poly.errors import IllegalSchedule
from polyc.poly.expr import Binary, Const, Expr, Load, Select, const_int
from polyc.scheduler.schedule import Schedule
from polyc.scheduler.strategies.auto import automatic

# ---- no false alarm ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",  # each is proved when `tests/test_polybench.py` compiles it, for one thread
    in_part(polybench.MODULES, lambda name: list(polybench.MODULES).index(name) % 3 == 0),
)
def test_polybench_is_proved(name: str) -> None:
    kernel = polybench.load(name)
    scop = kernel.operator.scop(**kernel.arguments("MINI")[1])
    s = automatic(scop, TARGET, threads=2)
    prove(s.scop, build_loops(s.scop, s.tree, "f"))


def prove_library(makers: list[Any]) -> None:
    for make in makers:
        s = automatic(make().scop(), TARGET, threads=2)
        prove(s.scop, build_loops(s.scop, s.tree, "f"))


def test_library_operators_are_proved() -> None:
    prove_library(list(library().values())[::4])


@pytest.mark.long
def test_all_library_operators_are_proved() -> None:
    prove_library(list(library().values()))


def prove_random(seeds: range) -> None:
    for seed in seeds:
        program = generate(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scop, free = program.operator().scop(), program.operator(reassociate=True).scop()
        for s in (
            Schedule.start(scop),
            random_schedule(Schedule.start(scop), seed),
            random_schedule(Schedule.start(free), seed + 1, tries=10),
            automatic(free, TARGET, threads=1 + seed % 2),
        ):
            prove(s.scop, build_loops(s.scop, s.tree, "f"))


@pytest.mark.parametrize("first", range(0, 12, 6))
def test_random_programs_are_proved(first: int) -> None:
    prove_random(range(first, first + 6))


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 1500, 25))
def test_many_random_programs_are_proved(first: int) -> None:
    prove_random(range(first, first + 25))


# ---- after passes ----------------------------------------------------------------------------

PASSES = (separate_tiles, unroll, simplify)


def prove_after_passes(cases: Iterable[Case]) -> None:
    for case in cases:
        fn = case.fn
        for step in PASSES:
            fn = unique_names(step(fn))
            prove(case.scop, fn)


def test_passes_up_to_vectorisation_keep_the_proof() -> None:
    prove_after_passes(by_hand())


@pytest.mark.long
def test_passes_up_to_vectorisation_keep_more_proofs() -> None:
    for cases in (of_polybench(list(polybench.MODULES), 1), of_library(), of_random_programs(range(100, 200))):
        prove_after_passes(cases)


# ---- each rule -----------------------------------------------------------------------------


def matmul_in_tiles() -> tuple[Any, Function]:
    """C in a tile of its own (copied out), B packed (copied in)."""
    s = Schedule.start(matmul.scop()).tile(["i", "j"], [3, 4]).promote("C", "j.out", "local")
    s = s.promote("B", "i.out", "heap").parallel("i.out")
    return s.scop, build_loops(s.scop, s.tree, "f")


def rebuilt(s: Stmt, change: Any) -> Stmt:
    """Bottom-up: `change` may return another statement."""
    s = with_bodies(s, tuple(rebuilt(b, change) for b in s.bodies()))
    return change(s)


def edit(kind: type, change: Any, **having: Any) -> Any:
    """A change of all statements of a type with these attributes."""

    def one(s: Stmt) -> Stmt:
        return change(s) if isinstance(s, kind) and all(getattr(s, k) == v for k, v in having.items()) else s

    return lambda fn: replace(fn, body=rebuilt(fn.body, one))


def statement(name: str, change: Any) -> Any:
    """A change of the stores that stand for a statement."""
    return edit(Store, lambda s: change(s) if s.instance is not None and s.instance[0] == name else s)


def copies(buffer: str, change: Any) -> Any:
    return edit(Store, lambda s: change(s) if s.instance is None and buffer in (s.array, s.value.array) else s)


def plus(e: Expr, by: int = 1) -> Expr:
    return Binary("+", e, const_int(by), e.dtype)


def shifted(s: Store) -> Store:
    return replace(s, index=(plus(s.index[0]), *s.index[1:]))


def no_accumulator(s: Store) -> Store:
    return replace(s, value=s.value.b)


def other_factor(s: Store) -> Store:
    return replace(s, value=Binary(s.value.op, s.value.a, s.value.b.a, f64))


def swapped(s: Block) -> Block:
    return Block(tuple(reversed(s.stmts)))


def filled_late(s: Alloc) -> Alloc:
    fill, rest = s.body.stmts[0], s.body.stmts[1:]
    return replace(s, body=Block((*rest, fill)))


def past_the_buffer(s: Store) -> Store:
    i, j, _ = s.instance[1]
    return replace(s, array="C", index=(i, j), value=replace(s.value, a=Load("C", (i, j), f64)))


def collapsed(s: Stmt) -> Stmt:
    """All rows of the tile in one."""

    def fix(e: Expr) -> Expr:
        if isinstance(e, Load) and e.array == "C_buf":
            return Load("C_buf", (const_int(0), e.index[1]), f64)
        return e.with_children(tuple(map(fix, e.children()))) if e.children() else e

    if s.array == "C_buf":
        s = replace(s, index=(const_int(0), s.index[1]))
    return replace(s, value=fix(s.value))


EXAMPLES: dict[str, tuple[Any, str, str]] = {
    "an argument less": (lambda fn: replace(fn, buffers=fn.buffers[1:]), "interface", "arguments are not those"),
    "fast math": (lambda fn: replace(fn, fast_math=True), "interface", "floating-point rules"),
    "one name twice": (edit(For, lambda s: replace(s, var="i_out"), var="j_out"), "interface", "bound twice"),
    "a bound in memory": (
        edit(For, lambda s: replace(s, hi=Load("I", (), s.hi.dtype)), var="j_out"), "domain", "not affine",
    ),
    "a loop too long": (edit(For, lambda s: replace(s, hi=plus(s.hi)), var="k"), "domain", "wrongly run .* of S1"),
    "a loop too short": (edit(For, lambda s: replace(s, lo=plus(s.lo)), var="k"), "domain", "miss .* of S1"),
    "run twice": (edit(For, lambda s: Block((s, s)), var="k"), "domain", "some instance of S1 twice"),
    "an unknown statement": (statement("S1", lambda s: replace(s, instance=("S7", ()))), "values", "claims to be S7"),
    "another element": (statement("S0", shifted), "buffers", "'C_buf' .*(two elements|outside)"),
    "no accumulator": (statement("S1", no_accumulator), "values", "S1 computes another value"),
    "another operand": (statement("S1", other_factor), "values", "S1 computes another value"),
    "another constant": (statement("S0", lambda s: replace(s, value=Const(-0.0, f64))), "values", "computes another"),
    "a condition of its own": (
        statement("S0", lambda s: If(Binary(">", Load("A", s.instance[1], f64), Const(0.0, f64), s.value.dtype), s)),
        "values", "S0 runs under a condition of its own",
    ),
    "a false mark": (statement("S0", lambda s: replace(s, reduction="+")), "values", r"S0 is marked a '\+' reduction"),
    "statements swapped": (
        edit(Block, lambda s: swapped(s) if isinstance(s.stmts[0], Store) else s), "order", "S1 may run before S0",
    ),
    "a race": (edit(For, lambda s: replace(s, kind="parallel"), var="k"), "order", "S1 may run at the same time as S1"),
    "a stray store": (copies("B_buf", lambda s: replace(s, value=Const(0.0, f64))), "buffers", "to no statement"),
    "another element copied": (copies("B_buf", shifted), "buffers", "'B_buf' has a cell that stands for two"),
    "not filled": (copies("B_buf", lambda s: Block(())), "buffers", "'B_buf' is not filled, but 'B' holds values"),
    "not copied out": (copies("C_buf", lambda s: Block(())), "buffers", "'C_buf' is not copied out, but 'C' goes back"),
    "filled late": (edit(Alloc, lambda s: filled_late(s) if s.buffer.name == "B_buf" else s), "buffers", "not filled"),
    "passed by": (statement("S1", past_the_buffer), "buffers", "'C_buf' is passed by: S1 accesses 'C' itself"),
    "two elements in one cell": (edit(Store, collapsed), "buffers", "'C_buf' has a cell that stands for two elements"),
    "too small": (
        edit(Alloc, lambda s: replace(s, buffer=replace(s.buffer, shape=(const_int(2), const_int(4))))
             if s.buffer.name == "C_buf" else s), "buffers", r"'C_buf' is accessed outside its extent \(i_in of 2\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_wrong_is_said(name: str) -> None:
    change, rule, text = EXAMPLES[name]
    scop, fn = matmul_in_tiles()
    with pytest.raises(WrongLoops, match=text) as error:
        prove(scop, change(fn))
    assert error.value.rule == rule


@pytest.mark.parametrize(
    "change",
    [
        edit(For, lambda s: replace(s, kind="vector"), var="i_out"),
        edit(For, lambda s: replace(s, kind="vector"), var="k"),  # a reduction
        edit(For, lambda s: replace(s, kind="parallel"), var="j_in"),
        edit(For, lambda s: replace(s.body, body=replace(s, body=s.body.body)), var="i_in"),
        edit(For, lambda s: replace(s, hi=s.lo), var="none"),
        copies("B_buf", lambda s: Block((s, s))),
    ],
)
def test_other_right_loops_are_accepted(change: Any) -> None:
    scop, fn = matmul_in_tiles()
    prove(scop, change(fn))


def test_lanes_that_copy_an_accumulator_lose_updates() -> None:
    s = Schedule.start(histogram.scop()).promote("C", "k", "local")
    fn = build_loops(s.scop, s.tree, "f")
    prove(s.scop, fn)
    with pytest.raises(WrongLoops, match="S0 may run at the same time as S0"):
        prove(s.scop, edit(For, lambda s: replace(s, kind="vector"))(fn))
    with pytest.raises(IllegalSchedule, match="different iterations of the vector loop 'k.in'"):
        s.vectorize("k", 4)
    with pytest.raises(IllegalSchedule, match="different iterations of the vector loop 'k'"):
        Schedule.start(histogram.scop()).vectorize("k", 4).promote("C", "k", "local")


def test_what_the_quota_leaves_open_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    scop, fn = matmul_in_tiles()
    assert proven(scop, fn).notes == ()
    notes: set[str] = set()
    for operations in (1, *range(1000, 30_000, 1000)):
        monkeypatch.setattr(entry, "QUOTA", operations)
        notes |= {n.split(" was given up")[0] for n in proven(scop, fn).notes}
    assert "the proof of the loops" in notes and len(notes) > 1
    monkeypatch.setattr(entry, "QUOTA", 10**9)
    assert proven(scop, fn).notes == ()


L = dims("L")


@op
def band(A: inout(f64[L + 3])):
    for i in range(L):
        for j in range(max(i - 2, 0), min(i + 3, L)):
            A[j + 2] = min(A[j + 2], A[j] - A[L - i] + abs(A[i + 2]))


def test_iterators_in_cases_are_one_relation() -> None:
    """Loops of one iteration each, for which isl has nine cases: the questions are asked of what they are together."""
    s = Schedule.start(band.scop()).skew("j", "i", 4).tile(["i", "j"], [8, 64]).permute("j.in", "i.in")
    s = s.skew("j.out", "i.out", 1).interchange("i.out", "j.out").parallel("i.out")
    fn = build_loops(s.scop, s.tree, "f")
    (run,) = entry.read_model(s.scop, fn).runs
    assert run.instance.n_piece() > 1 and run.relation.n_basic_map() == 1
    prove(s.scop, fn)


@op(reassociate=True)
def histogram(A: f64[L], C: inout(f64[L])):
    for k in range(L):
        C[k // 2] += A[k]


@op
def shifted_where_safe(A: f32[L], B: f32[L]) -> f32[L]:
    R = empty((L,), f32)
    for i in range(L):
        R[i] = B[i + 1] if A[i] > 0.0 and i < L - 1 else 0.0
    return R


def test_copies_stay_inside_the_array() -> None:
    """A condition that is affine in part keeps a copy from elements that do not exist."""
    s = Schedule.start(shifted_where_safe.scop()).promote("B", "i", "local")
    fn = build_loops(s.scop, s.tree, "f")
    prove(s.scop, fn)
    arrays = {"A": np.ones(4, "f"), "B": np.arange(4, dtype="f"), "R": np.zeros(4, "f")}
    interp.run(fn, arrays, {"L": 4})
    assert list(arrays["R"]) == [1, 2, 3, 0]


def test_products_of_sizes_of_windows() -> None:
    """`min(3, 9 - 2 * i) * min(3, 8 - 2 * j)`, of which the loops know the first factor."""
    scop = pooling.make_average_pool(f32, 2, (8, 9), (4, 4), (3, 3), (2, 2), (1, 1), (0, 0), (0, 0), False).scop()
    fn = build_loops(scop, scop.tree, "f")
    prove(scop, fn)
    divided = [s for s in walk(fn.body) if isinstance(s, Store) and "* min(" in expr_text(s.value)]
    assert divided

    def other(e: Expr) -> Expr:
        if isinstance(e, Const) and e.value == 8:
            return const_int(7)
        return e.with_children(tuple(map(other, e.children()))) if e.children() else e

    with pytest.raises(WrongLoops, match="computes another value"):
        prove(scop, edit(Store, lambda s: replace(s, value=other(s.value)) if s in divided else s)(fn))


def test_conditions_that_the_loops_decide_may_go() -> None:
    scop = guarded.scop()
    s = Schedule.start(scop).split("i", 3)
    fn = build_loops(s.scop, s.tree, "f")
    prove(scop, fn)

    def first(e: Expr) -> Expr:
        return first(e.b) if isinstance(e, Select) else e.with_children(tuple(map(first, e.children())))

    with pytest.raises(WrongLoops, match="computes another value"):
        prove(scop, statement("S0", lambda s: replace(s, value=first(s.value)))(fn))


@op
def cut(A: f64[L], B: inout(f64[L, L])):
    for i in range(L):
        for j in range(L):
            for k in range(1, L):
                if i > 0 and i < L - 1:
                    x = A[k] * 2.0
                    B[i, j] = x
                else:
                    B[k, j] = 5.0


def test_a_buffer_in_parts_is_copied_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl repeats the copies in the part of the other statement, whose buffer is unset."""
    s = Schedule.start(cut.scop()).promote("x", "k", "heap")
    prove(s.scop, build_loops(s.scop, s.tree, "f"))
    monkeypatch.setattr(lower, "guard_copies", lambda scop, fn: fn)
    with pytest.raises(WrongLoops, match="'x_buf' is copied from or to elements that it does not stand for"):
        prove(s.scop, build_loops(s.scop, s.tree, "f"))
