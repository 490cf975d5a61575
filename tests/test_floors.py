"""The floors of the graph driver: its rooms in the order of the flow, of which each imports only those before it.

What a lower room needs of a higher one is handed to it as a function, or is a service that `wiring.py` names
(`polyc.poly.hooks`): `Model.save` does not know compiled directories.
"""

import pytest
from floors import arrows, circles, imports, room

ROOMS = (
    "graph", "operators", "inference", "verifying", "host", "importing",  # from a file to a graph
    "choosing", "passes", "memory", "fusion", "layouts", "planning",  # from a graph to groups with places
    "worker", "execution", "options", "running", "compiling", "compile_model",  # from groups to a model
    "artifacts", "bench", "tuning", "checking", "explaining", "html",  # what is done with models
    "session", "onnx_backend", "wiring", "cli", "",  # ways in; the package itself has no name here
)  # fmt: skip

BACK_UP: frozenset[tuple[str, str]] = frozenset()
"""Arrows against the order that are allowed: (who imports, who is imported). None may be added."""
MOST_BACK_UP = 10


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    return imports("graph_driver")


def test_every_room_has_its_floor(found: dict[str, set[str]]) -> None:
    assert len(set(ROOMS)) == len(ROOMS)
    assert {room(m) for m in found} == set(ROOMS)


def test_rooms_import_only_those_before_them(found: dict[str, set[str]]) -> None:
    floor = {name: k for k, name in enumerate(ROOMS)}
    back = {(a, b): those for (a, b), those in arrows(found).items() if floor[b] > floor[a]}
    assert {pair: those for pair, those in back.items() if pair not in BACK_UP} == {}
    assert BACK_UP <= back.keys()  # one that is gone stays gone
    assert len(BACK_UP) <= MOST_BACK_UP


def test_no_modules_import_each_other(found: dict[str, set[str]]) -> None:
    assert circles(found) == []


def test_arrows_and_circles_are_found() -> None:
    """Of both kinds there are none to see any more: here are some."""
    assert arrows({"a.x": {"b.y"}, "b.y": {"a.x", "b"}, "b": set()}) == {
        ("a", "b"): ["a.x -> b.y"],
        ("b", "a"): ["b.y -> a.x"],
    }
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
