"""Lines of generated code know where they come from, and knowing it changes no code."""

from __future__ import annotations

from typing import Any

import pytest
from operators import automatic, document, scop_of, skewed_jacobi, tiled_matmul

from polyc.emit import targets
from polyc.emit.listing import assembly_lines, listing
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.loop_ir.loops import Function, Store, walk
from polyc.emit.lowering.lower import lower, proven_loops
from polyc.emit.mathlib import expand_function
from polyc.poly.tree import loop_names

SCHEDULES: dict[str, Any] = {
    "matmul": lambda: automatic("matmul"),
    "tiled": tiled_matmul,
    "skewed": skewed_jacobi,
}
MORE = ("correlation", "durbin", "two_mm", "ludcmp")
CASES = [*SCHEDULES, *(pytest.param(name, marks=pytest.mark.long) for name in MORE)]


def schedule_of(name: str) -> Any:
    return SCHEDULES[name]() if name in SCHEDULES else automatic(name)


def function_of(schedule: Any) -> Function:
    return expand_function(lower(schedule.scop, schedule.tree, "k", targets.get(None)))


@pytest.mark.parametrize("name", CASES)
def test_line_tables_change_no_instruction(name: str) -> None:
    fn, target = function_of(schedule_of(name)), targets.get(None)
    made = listing(fn, target)
    plain = assembly_lines(jit.assembly(to_llvm(fn, target), target))
    assert [x.text for x in made.texts["asm"]] == [x.text for x in plain]
    assert [x.text for x in made.texts["llvm"]] == to_llvm(fn, target).splitlines()
    assert sum(x.origin > 0 for x in made.texts["asm"]) > 0.4 * sum(x.text.startswith("\t") for x in made.texts["asm"])


@pytest.mark.parametrize("name", CASES)
def test_every_store_knows_its_loops_and_its_statement(name: str) -> None:
    schedule = schedule_of(name)
    loops = loop_names(schedule.tree)
    for s in walk(function_of(schedule).body):
        if isinstance(s, Store):
            assert s.origin is not None
            if s.origin.statement is None:
                assert s.origin.buffer
            else:
                around = [m for m in loops if m in s.origin.loops]
                assert s.origin.statement in schedule.scop.statements
                assert list(s.origin.loops) == around  # all of the tree's loops around, in the tree's order
    for s in walk(proven_loops(schedule.scop, schedule.tree, "f").body):
        if isinstance(s, Store) and s.instance is not None:
            assert s.origin is not None and s.origin.statement == s.instance[0]


@pytest.mark.parametrize("name", CASES)
def test_c_lines_lead_to_the_store_that_they_print(name: str) -> None:
    fn, target = function_of(schedule_of(name)), targets.get(None)
    made = listing(fn, target)
    stored = {k for k, line in enumerate(made.loops, 1) if isinstance(line.stmt, Store)}
    reached = {x.origin for x in made.texts["c"]}
    assert stored <= reached
    for x in made.texts["c"]:
        stmt = made.loops[x.origin - 1].stmt if x.origin else None
        if isinstance(stmt, Store):
            assert stmt.array in x.text


def test_the_document_links_leaves_to_all_texts() -> None:
    data = document(automatic("matmul"))
    code, keys = data["code"], data["code"]["keys"]
    lines = {k for k, (_, own, _) in enumerate(code["loops"], 1) if own == [keys.index("stmt:S1")]}
    assert lines
    for name in ("c", "llvm", "asm"):
        assert any(origin in lines for _, origin in code[name])
    source = data["sources"][0]
    first, last = source["statements"]["S1"]
    assert "A[i, k] * B[k, j]" in source["lines"][first - source["first"]] and first == last


def test_the_document_is_the_same_every_time() -> None:
    import json

    texts = {json.dumps(document(automatic("trisolv")), sort_keys=True) for _ in range(2)}
    assert len(texts) == 1


def test_a_schedule_without_code_is_shown_all_the_same() -> None:
    scop = scop_of("matmul")
    schedule = scop.schedule().unroll("i")  # `i` has no constant extent
    data = document(schedule)
    assert data["tree"] and ("error" in data["code"]) == (data["code"].get("loops") is None)
