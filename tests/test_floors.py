"""The floors of packages: their rooms in the order of the flow, of which each imports only those before it.

What a lower room needs of a higher one is handed to it as a function, or is a service that `wiring.py` names
(`polyc.poly.hooks`): `Model.save` does not know compiled directories.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from floors import arrows, circles, imports, room

ROOMS = {
    "scheduler": (
        "decision", "arguments", "step", "transformations", "questions", "repair", "texts",  # trees and facts of them
        "core", "steps", "schedule",  # checked steps
        "recognition", "cost", "programs", "strategies", "tuning",  # what nests are, cost, become; which of it pays
        "",  # the package itself has no name here
    ),
    "graph_driver": (
        "graph", "communication", "operators", "inference", "verifying", "host", "importing",  # from a file to a graph
        "building", "gradients",  # of graphs
        "choosing", "passes", "memory", "fusion", "layouts", "planning",  # from a graph to groups with places
        "rematerialising",  # groups that run again
        "execution", "backends", "worker", "options", "running", "compiling", "tiers", "bounding",  # from groups
        "compile_model", "growing", "training",  # to a model
        "parallel",  # to the programs of several ranks
        "python_graphs", "torch_bridge", "stablehlo", "functional",  # from Python's, PyTorch's and JAX's graphs
        "artifacts", "known", "bench", "tuning", "farm", "checking", "narrowing",  # done with models
        "explaining", "slices", "incremental", "html",
        "session", "onnx_backend", "wiring", "cli", "",  # ways in; the package itself has no name here
    ),
}  # fmt: skip
"""Of each package its rooms, the lowest first."""

BACK_UP: Mapping[str, frozenset[tuple[str, str]]] = {
    "scheduler": frozenset({("transformations", "texts"), ("texts", "core"), ("steps", "schedule")}),
    "graph_driver": frozenset(),
}
"""Arrows against the order that are allowed: (who imports, who is imported). None may be added."""

CIRCLES = {
    "scheduler": [
        ["core", "repair", "texts.addressing", "transformations.fusion", "transformations.merging",
         "transformations.storage", "transformations.tree_edit"],
        ["schedule", "steps.files"],
    ],
    "graph_driver": [],
}  # fmt: skip
"""Modules that still import each other. None may be added."""


@pytest.fixture(scope="module", params=ROOMS)
def package(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def found(package: str) -> dict[str, set[str]]:
    return imports(package)


def test_every_room_has_its_floor(package: str, found: dict[str, set[str]]) -> None:
    assert len(set(ROOMS[package])) == len(ROOMS[package])
    assert {room(m) for m in found} == set(ROOMS[package])


def test_rooms_import_only_those_before_them(package: str, found: dict[str, set[str]]) -> None:
    floor = {name: k for k, name in enumerate(ROOMS[package])}
    back = {(a, b): those for (a, b), those in arrows(found).items() if floor[b] > floor[a]}
    assert {pair: those for pair, those in back.items() if pair not in BACK_UP[package]} == {}
    assert BACK_UP[package] <= back.keys()  # one that is gone stays gone


def test_no_modules_import_each_other(package: str, found: dict[str, set[str]]) -> None:
    """But for circles that are known: one that is gone stays gone."""
    assert circles(found) == CIRCLES[package]


def test_arrows_and_circles_are_found() -> None:
    """Of both kinds there are few to see any more: here are some."""
    assert arrows({"a.x": {"b.y"}, "b.y": {"a.x", "b"}, "b": set()}) == {
        ("a", "b"): ["a.x -> b.y"],
        ("b", "a"): ["b.y -> a.x"],
    }
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
