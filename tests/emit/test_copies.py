"""Register tiles go through the passes as loops: what comes out is what copies of rows give, for fewer statements."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from polyc import dims, f32, inout, op
from polyc.emit import pipeline, targets
from polyc.emit.loop_ir.loops import Function, Store, walk
from polyc.emit.loop_ir.printer import to_text
from polyc.emit.lowering.lower import lower, proven_loops
from polyc.emit.passes import unroll
from polyc.frontend_dsl.library.matrix import make_matmul
from polyc.poly.errors import BuildError
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Node
from polyc.scheduler.strategies.auto import automatic

sys.path += [str(Path(__file__).resolve().parents[1] / "gpu")]
from library_cases import CASES

MACHINES = ("x86-64-v3", "x86-64-v4", "neoverse-v1")
M, N, K = dims("M N K")


def both(scop: Scop, tree: Node, machine: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Function, Function]:
    """The function whose tiles wait, and the one whose rows are copied first."""
    compact = lower(scop, tree, "f", targets.get(machine))
    with monkeypatch.context() as patch:
        patch.setattr(unroll, "may_wait", lambda loop: False)
        return compact, lower(scop, tree, "f", targets.get(machine))


def marked(node: Node, r: random.Random) -> Node:
    """The tree with loops to be unrolled and vectors at random places."""
    if node.children():
        node = node.with_children(tuple(marked(c, r) for c in node.children()))
    if not isinstance(node, Band):
        return node
    kinds = [r.choice(["serial", "unroll", "unroll", "vector"]) for _ in node.members]
    return replace(node, members=tuple(replace(m, kind=k, factor=None) for m, k in zip(node.members, kinds)))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["matmul", "conv_plain", "depthwise_nobias", "grouped", "conv3d", "softmax"])
def test_tiles_of_the_library_come_out_as_copies_of_their_rows(
    name: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = automatic(CASES[name](37, 33, 41).scop(), targets.get(machine))
    compact, plain = both(schedule.scop, schedule.tree, machine, monkeypatch)
    assert to_text(compact) == to_text(plain)
    assert compact.notes == plain.notes


@op
def rows(A: f32[M, N], B: f32[M, K], C: inout(f32[M, N]), D: inout(f32[M, N])):
    for i in range(M):
        for j in range(N):
            C[i, j] = C[0, j] * 0.5 + A[i, j]
            for k in range(K):
                D[i, j] += B[i, k] * C[i, j]


@op
def triangles(A: f32[M, M], x: f32[M], y: inout(f32[M])):
    for i in range(M):
        for j in range(i + 1):
            y[i] += A[i, j] * x[j]
            y[0] -= A[j, i]


@op
def windows(X: f32[2 * M + 1, N + 2], Y: inout(f32[M, N])):
    for i in range(M):
        for j in range(N):
            for k in range(3):
                Y[i, j] += X[2 * i + k, j] * X[i // 2, j + k] if i < 2 else X[k, j]


def unnamed(fn: Function) -> str:
    """The text, with names numbered in the order in which they first come."""
    numbers: dict[str, int] = {}
    return re.sub(r"[A-Za-z_]\w*", lambda m: f"x{numbers.setdefault(m[0], len(numbers))}", to_text(fn))


@pytest.mark.parametrize("seed", range(24))
def test_loops_marked_at_random_come_out_as_copies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(seed)
    operator = (rows, triangles, windows)[seed % 3]
    sizes = {"M": r.choice([3, 5, 8]), "N": r.choice([19, 23, 32]), "K": r.choice([2, 16, 21])}
    plain = operator.scop()
    scop = specialise(plain, {n: v for n, v in sizes.items() if n in plain.params})
    for _ in range(9):
        try:
            compact, copied = both(scop, marked(scop.tree, r), r.choice(MACHINES), monkeypatch)
            break
        except BuildError:  # these vectors would change the program's order
            continue
    else:
        pytest.skip("no marks that are legal")
    assert unnamed(compact) == unnamed(copied)
    assert compact.notes == copied.notes


def seen(scop: Scop, tree: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """How many statements the function has after each pass."""
    machine = targets.get("x86-64-v4")
    counted: list[tuple[str, int]] = []
    with monkeypatch.context() as patch:
        check = pipeline.verify

        def counting(fn: Function, after: str, known: pipeline.Known) -> None:
            counted.append((after, sum(1 for _ in walk(fn.body))))
            check(fn, after, known)

        patch.setattr(pipeline, "verify", counting)
        pipeline.run_passes(proven_loops(scop, tree, "f"), machine)
    yield from counted


def test_passes_see_a_tile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = automatic(make_matmul(f32, 512, 512, 512).scop(), targets.get("x86-64-v4"))
    counts = dict(seen(schedule.scop, schedule.tree, monkeypatch))
    before = counts["copies"]
    assert "whole lanes" not in counts and "registers" not in counts  # they change nothing here
    assert all(counts.get(name, 0) * 2 < before for name in ("unroll", "simplify", "vectorise"))


def test_only_the_proof_needs_instances() -> None:
    scop = specialise(rows.scop(), {"M": 3, "N": 16, "K": 2})
    assert all(s.instance for s in walk(proven_loops(scop, scop.tree, "f").body) if isinstance(s, Store))
    final = lower(scop, scop.tree, "f", targets.get("x86-64-v3"))
    assert not any(s.instance for s in walk(final.body) if isinstance(s, Store))
