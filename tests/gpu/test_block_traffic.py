"""The bytes that a block moves, as counted from the launch, are those that oclgrind counts when it runs."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from typing import Any

import pytest
import test_traffic
import traffic
from programs import ALL, arguments

from polyc.emit.gpu import targets
from polyc.emit.gpu.lower import lower_gpu
from polyc.emit.gpu.program import sequence
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.gpu.traffic import Memory, Way, block_traffic, blocks
from polyc.emit.loop_ir.loops import Function, Launch, walk
from polyc.emit.mathlib import expand_function
from polyc.scheduler.strategies.auto import automatic

ROWS = ("softmax", "layer_norm")
needs_oclgrind = pytest.mark.skipif(bool(traffic.missing()), reason=traffic.missing())


def launched(fn: Function, sizes: dict[str, int]) -> list[Launch]:
    """The launches that the host makes for these sizes."""
    program = to_gpu(fn, targets.get("opencl"))
    names = Counter(c.kernel.name for c in sequence(program, sizes).calls)
    found = [s for s in walk(fn.body) if isinstance(s, Launch) and program.kernels[s.name].name in names]
    assert max(names.values()) == 1, "a kernel that the host launches again and again"
    return found


def predicted(fn: Function, sizes: dict[str, int]) -> dict[tuple[Memory, Way], int]:
    """All blocks of all launches."""
    total: dict[tuple[Memory, Way], int] = {(m, w): 0 for m in ("global", "shared") for w in ("read", "written")}
    for s in launched(fn, sizes):
        for block in itertools.product(*(range(n) for n in blocks(s, sizes))):
            found = block_traffic(fn, s, sizes, block)
            assert found.exact
            for memory, way in total:
                total[memory, way] += found.total(memory, way)
    return total


@needs_oclgrind
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("chain", (5, 37, 1)), ("matmul", (37, 41, 5)),
        pytest.param("softmax", (2, 70, 1), marks=pytest.mark.long),
        pytest.param("matmul", (64, 64, 32), marks=pytest.mark.long),
        pytest.param("matmul", (131, 150, 9), marks=pytest.mark.long),
        pytest.param("layer_norm", (3, 300, 1), marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_what_is_counted_is_what_happens(name: str, sizes: tuple[int, int, int]) -> None:
    scop, fn = test_traffic.mapped(name)
    _, found = traffic.counted(scop, fn, arguments(name, sizes))
    total = predicted(fn, dict(zip("MNK", sizes)) if "K" in fn.params else dict(zip("MN", sizes)))
    for memory, space in (("global", "global"), ("shared", "local")):
        assert found.written[space] == total[memory, "written"]
        least = total[memory, "read"] * (0.7 if name in ROWS else 1)  # clang forwards what was just stored
        assert least <= found.read[space] <= total[memory, "read"]


def test_a_large_product_takes_no_time() -> None:
    target = targets.get("sm_90")
    s = automatic(ALL["matmul"][0].scop(), target)
    fn = expand_function(lower_gpu(s.scop, s.tree, "matmul", target))
    sizes = dict.fromkeys(fn.params, 4096)
    launch = next(x for x in walk(fn.body) if isinstance(x, Launch) and x.given)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = block_traffic(fn, launch, sizes)
    finally:
        sys.setprofile(None)
    assert found.exact and calls < 5_000_000  # far fewer than the 4096 ** 3 instances
    rows, columns = (-(-4096 // n) for n in reversed(blocks(launch, sizes)))
    assert found.total("global", "read") == 4 * 4096 * (rows + columns)
    assert found.total("global", "written") == 4 * rows * columns
    assert {a for (m, a, _) in found.bytes if m == "shared"} == {"A_panel", "B_panel"}
