"""Register tiles stay in registers: in the loops that do the work nothing is spilled (read in the assembly)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from onnx import TensorProto, helper

from benchmarks.cases import Case, convolutions, gemms, make_case, normal
from benchmarks.cliffs import Shape, convolution
from polyc.emit import targets
from polyc.frontend_dsl.library.pairs import make_pair_matmul
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.from_source import import_with
from polyc.graph_driver.compiling.stages import formed, optimise
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.cost import tile_plan
from polyc.scheduler.cost.register_tile import RegisterTile
from polyc.scheduler.strategies.auto import automatic

PRODUCTS = re.compile(r"^\s+(vfn?madd|vpmaddwd|vpdpwssd|fmla|vfmla)")
LABEL = re.compile(r"^(\.?L\w+):")
BACK = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|t?cbn?z|tbn?z)\s+(?:.*,\s*)?(\.?L\w+)\s*$")
SPILL = re.compile(r"%[xyz]mm\d+.*-?\d*\(%rsp\)|-?\d*\(%rsp\),.*%[xyz]mm|\b[qv]\d+.*\[sp|\bldp\s+q.*\[sp")
# Unrolled taps of stride 2 share row values, of which one is stored for a while: without it the kernel is no faster.
FEW = {"conv 3x3/2 128->128 28x28": 0.1}
X86 = ("x86-64-v3", "x86-64-v4")


def innermost(text: str) -> Iterator[list[str]]:
    """The bodies of innermost loops: from a label back to which a jump leads, with no other such pair inside."""
    lines = text.splitlines()
    labels = {m[1]: k for k, line in enumerate(lines) if (m := LABEL.match(line))}
    loops = [
        (labels[m[1]], k) for k, line in enumerate(lines) if (m := BACK.match(line)) and labels.get(m[1], k + 1) <= k
    ]
    for a, b in loops:
        if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops):
            yield lines[a : b + 1]


def spills(scop: Scop, target: Target) -> list[float]:
    """Accesses of vectors on the stack for each product, in each innermost loop that multiplies and adds."""
    text = compile_operator(scop, target, threads=1).source("asm")
    bodies = [(sum(bool(PRODUCTS.match(line)) for line in body), body) for body in innermost(text)]
    return [sum(bool(SPILL.search(line)) for line in body) / n for n, body in bodies if n > 1]


def scops(case: Case, target: Target) -> list[Scop]:
    """Of the kernels that a model of this one operator has."""
    platform, options = platform_of(target, 1), CompileOptions(threads=1)
    graph = import_with(case.model, platform, options)
    optimise(graph, platform, options)
    return [g.scop for g in formed(graph, platform, options)[1] if g.scop is not None]


def check(case: Case, target: Target) -> None:
    found = [n for s in scops(case, target) for n in spills(s, target)]
    assert found and max(found) <= FEW.get(case.name, 0.0), f"{case.name}: {found}"


def double(m: int, n: int, k: int) -> Case:
    inputs = {"X": normal(m, k).astype(np.float64), "W": normal(k, n).astype(np.float64)}
    node = helper.make_node("MatMul", ["X", "W"], ["Y"])
    return make_case("f64", "gemm", [node], inputs, {}, (m, n), 0.0, TensorProto.DOUBLE)


DEPTHWISE = [
    Shape(96, 96, (56, 56), (7,), groups=96), Shape(63, 63, (17, 17), (9,), groups=63),
    Shape(120, 120, (14, 14), (5,), groups=120), Shape(48, 48, (33, 33), (3,), dilation=(2,), groups=48),
    Shape(64, 64, (28, 28), (3,), groups=8), Shape(17, 17, (112, 112), (3,), (2,), groups=17, batch=2),
]  # fmt: skip
DENSE = [Shape(64, 64, (28, 28), (5,)), Shape(3, 16, (224, 224), (3,), (2,)), Shape(128, 128, (997,), (3,))]
CASES = [*gemms(), *convolutions(), *map(convolution, (*DEPTHWISE, *DENSE)), double(100, 90, 80), double(7, 64, 300)]
QUICK = {"gemm 128x768x768", "conv 7x7/2 3->64 224x224", "depthwise 5x5/1 120->120 14x14", "f64"}


@pytest.mark.parametrize("name", X86)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.long
def test_nothing_is_spilled(case: Case, name: str) -> None:
    check(case, targets.get(name))


@pytest.mark.parametrize("case", [c for c in CASES if c.name in QUICK], ids=lambda c: c.name)
def test_nothing_is_spilled_in_some(case: Case) -> None:
    check(case, targets.get("x86-64-v3"))


@pytest.mark.parametrize("name", [*X86, "sapphire-rapids"])
@pytest.mark.parametrize("sizes", [(32, 16, 64), (100, 96, 256), (7, 64, 40)])
def test_nothing_is_spilled_in_integer_products(sizes: tuple[int, int, int], name: str) -> None:
    found = spills(make_pair_matmul(*sizes).scop(), targets.get(name))
    assert found and not any(found)


def test_a_tile_that_is_too_large_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_plan, "choose", lambda *_, **__: RegisterTile(9, 3, 8, 1.0))
    case = next(c for c in CASES if c.name == "gemm 128x768x768")
    (scop,) = scops(case, targets.get("x86-64-v3"))
    assert any(spills(scop, targets.get("x86-64-v3")))


@pytest.mark.parametrize("channels, columns", [(8, "w_1"), (64, "w_1"), (80, "w_1")])
def test_lanes_run_along_the_image_where_filters_are_few(channels: int, columns: str) -> None:
    """However many channels: in reading order they lie on fewer pages than the first-level TLB has."""
    target = targets.get("x86-64-v3")
    (scop,) = scops(convolution(Shape(channels, 12, (128, 128), (5,))), target)
    done = [d.figures for d in automatic(scop, target, 1).decisions if d.outcome == "done"]
    assert [f["column_loop"] for f in done if "column_loop" in f] == [columns]


def test_rows_of_tiles_do_not_overlap() -> None:
    """Rests of 6 of 14 columns: a last vector that overlapped the first would keep the tile in memory."""
    target = targets.get("x86-64-v3")
    (scop,) = scops(convolution(Shape(64, 64, (14, 14), (3,), groups=64)), target)
    found = spills(scop, target)
    assert found and not any(found)
    loops = compile_operator(scop, target, threads=1).source("loops")
    assert "_tile[" in loops and not re.search(r"_tile\[[^=]*ramp\(6, 1, 8\)\] =", loops)
