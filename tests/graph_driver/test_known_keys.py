"""The keys of finished programs: whatever changes the program changes the key, and nobody can forget to say so."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyc.emit.c.cc import find_compiler
from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.graph import external
from polyc.graph_driver.known import key
from polyc.graph_driver.known.key import WITHOUT_EFFECT, NoKey, key_of
from polyc.graph_driver.operators import registry
from polyc.graph_driver.options import CompileOptions
from polyc.poly.target import Target

HERE = platform_of("cpu", 2)

OTHERS: dict[str, list[Any]] = {
    "target": ["cpu", "haswell", "znver4", "sm_80", HERE.machine, replace(HERE.machine, l2=HERE.machine.l2 + 1)],
    "threads": [None, 1, 2, 3],
    "dims": [{}, {"n": 1}, {"n": 2}, {"m": 1}, {"n": 1, "m": 1}, {"n": (1, 2)}, {"n": (1, None)}, {"n": (1, 3)}],
    "shapes": [{}, {"x": (1, 2)}, {"x": (2, 1)}, {"y": (1, 2)}, {"x": (1, 2), "y": (1, 2)}, {"x": (12,)}],
    "fuse": [True, False],
    "memory_limit": [None, 0, 1, 1 << 40],
    "progress": [None, print],
    "exact": [False, True],
    "reproducible": [False, True],
    "symbolic": [None, False, True],
    "passes": [None, (), ("fold",), ("fold", "views"), ("views", "fold"), ("foldviews",)],
    "disable": [(), ("fold",), ("views",), ("fold", "views")],
    "fast_math": [False, True],
    "bind": [
        {}, {"x": 0}, {"x": 0.0}, {"x": -0.0}, {"x": np.float32(0)}, {"x": np.float64(0)},
        {"x": np.zeros(1, np.float32)},
        {"x": np.zeros((1, 1), np.float32)}, {"x": np.zeros(1, np.int32)}, {"x": [0]}, {"x": False}, {"y": 0},
        {"x": np.arange(6).reshape(2, 3)}, {"x": np.arange(6).reshape(3, 2)}, {"x": np.arange(6).reshape(2, 3).T},
        {"x": np.nan}, {"x": 1e-320}, {"x": [1, [2]]}, {"x": [[1], 2]}, {"x": [1, 2]}, {"x": "0"}, {"x": b"0"},
    ],
    "planner": [None, "exact", "greedy"],
    "memory": ["usual", "minimal"],
    "tasks": [False, True],
    "tuned": [None, False, True],
    "precision": [None, "f32", "f16", "bf16", "int8", "auto"],
    "keep_f32": [(), ("a",), ("b",), ("a", "b")],
    "contiguous": [(), (("a", "b"),), (("b", "a"),), (("a",), ("b",))],
    "layouts": ["auto", "as_given", "channels_last", "blocked"],
    "strict_annotations": [False, True],
    "strict_shapes": [False, True],
    "checks": [None, False, True],
    "tier": ["full", "fast", "progressive"],
    "narrow_only": [(), ("a",), ("b",), ("a", "b")],
    "max_error": [None, 0.1, 0.2],
    "data": [{}, {"x": np.zeros(1, np.float32)}, {"x": np.zeros(2, np.float32)}, {"x": np.zeros(1, np.float64)}],
    "allow_downcast": [False, True],
}  # fmt: skip
"""Different values of each option; a new one needs some here."""


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path))
    monkeypatch.setattr(key, "identity", lambda: "this compiler")


def made(**values: Any) -> CompileOptions:
    """Options, of which some contradict the checks of their values: only keys are made of them."""
    options = CompileOptions()
    for name, value in values.items():
        object.__setattr__(options, name, value)
    return options


def test_every_option_has_values_here() -> None:
    assert OTHERS.keys() == {f.name for f in fields(CompileOptions)}
    assert WITHOUT_EFFECT <= OTHERS.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_every_option_changes_the_key(name: str) -> None:
    keys = [key_of("content", HERE, made(**{name: value})) for value in OTHERS[name]]
    assert len(set(keys)) == (1 if name in WITHOUT_EFFECT else len(keys))


def test_random_options_have_keys_of_their_own() -> None:
    """Two sets of options have one key exactly where they are the same."""
    rng = random.Random(17)
    seen: dict[str, str] = {}
    for _ in range(3000):
        values = {n: rng.randrange(len(v)) for n, v in OTHERS.items() if rng.random() < 0.4 and n not in WITHOUT_EFFECT}
        chosen = {n: OTHERS[n][k] for n, k in values.items()}
        text = repr(sorted((n, k) for n, k in values.items() if k != _default(n)))
        assert seen.setdefault(key_of("content", HERE, made(**chosen)), text) == text


def _default(name: str) -> int:
    """Which of the values is the one that nobody has asked for; -1 where none is."""
    default = getattr(CompileOptions(), name)
    return next((k for k, v in enumerate(OTHERS[name]) if type(v) is type(default) and v == default), -1)


def test_what_has_no_text_has_no_key() -> None:
    class Seven(int):
        """A number that behaves as it likes."""

    for value in (
        object(),
        {"x": Seven(7)},
        {"x": np.array([object()])},
        {"x": np.ma.masked_array([1], [True])},
        {1, 2},
    ):
        with pytest.raises(NoKey):
            key_of("content", HERE, made(bind=value))


def test_content_platform_and_compiler_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key_of(content, HERE, CompileOptions()) for content in ("content", "other")]
    keys += [key_of("content", platform_of(t, 1), CompileOptions()) for t in ("cpu", "haswell", "sm_80", "sm_90")]
    machine = HERE.machine
    assert isinstance(machine, Target)
    for f in fields(machine):  # a fact about the machine that is forgotten is a wrong program
        value = getattr(machine, f.name)
        other = value + 1 if isinstance(value, int) else f"{value}x"
        keys.append(key_of("content", replace(HERE, machine=replace(machine, **{f.name: other})), CompileOptions()))
    monkeypatch.setattr(key, "identity", lambda: "another compiler")
    keys.append(key_of("content", HERE, CompileOptions()))
    assert len(set(keys)) == len(keys)
    monkeypatch.setattr(key, "identity", lambda: None)
    with pytest.raises(NoKey):
        key_of("content", HERE, CompileOptions())


@pytest.mark.parametrize("name", ["POLYC_CHECK", "POLYC_BUDGET", "POLYC_TIME_LIMIT", "POLYC_HOST", "POLYC_NEW"])
def test_variables_change_the_key(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    keys = [key_of("content", HERE, CompileOptions())]
    for value in ("0", "2"):
        monkeypatch.setenv(name, value)
        keys.append(key_of("content", HERE, CompileOptions()))
    assert len(set(keys)) == 3


def test_places_and_workers_do_not_change_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = key_of("content", HERE, CompileOptions())
    for name in key.VARIABLES_WITHOUT_EFFECT:
        monkeypatch.setenv(name, str(tmp_path))
    assert key_of("content", HERE, CompileOptions()) == before


def test_tuning_records_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.graph_driver.worker import database

    tuned = CompileOptions(tuned=True)
    before = key_of("content", HERE, tuned), key_of("content", HERE, CompileOptions())
    database.store("kernel", database.Record("kernel", "cpu", 1, {}, "some", "a trace", 2.0))
    after = key_of("content", HERE, tuned), key_of("content", HERE, CompileOptions())
    assert before[0] != after[0] and before[1] == after[1]
    monkeypatch.setenv("POLYC_TUNED", "1")
    asked = key_of("content", HERE, CompileOptions())
    database.store("kernel", database.Record("kernel", "cpu", 1, {}, "some", "another trace", 2.0))
    assert len({asked, key_of("content", HERE, CompileOptions()), after[1]}) == 3


@pytest.fixture
def functions() -> Iterator[None]:
    yield
    for made in external.all_registered():
        external.unregister_external(made.name)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_registered_functions_change_the_key(functions: None) -> None:
    text = "#include <stdint.h>\nvoid f(void **b, const int64_t *s, void *r) {{ ((float *)b[1])[0] = {}; }}"

    def registered(name: str, source: str, **more: Any) -> str:
        external.register_external(name, "Relu", ["f32[n]"], ["f32[n]"], function="f", source=source, **more)
        return key_of("content", HERE, CompileOptions())

    keys = [key_of("content", HERE, CompileOptions())]
    keys.append(registered("one", text.format(1)))
    keys.append(registered("one", text.format(2)))
    keys.append(registered("two", text.format(2)))
    keys.append(registered("two", text.format(2), shapes="n >= 16"))
    assert len(set(keys)) == len(keys)
    with pytest.raises(NoKey, match="cost"):
        registered("two", text.format(2), cost=lambda sizes: 1.0)
    for name in ("one", "two"):
        external.unregister_external(name)
    assert key_of("content", HERE, CompileOptions()) == keys[0]


def test_registered_builders_have_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OTHERS", {("", "Relu"): lambda _: None})
    with pytest.raises(NoKey, match="builders"):
        key_of("content", HERE, CompileOptions())


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_a_c_compiler_changes_the_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    c = platform_of("c", 1)
    keys = [key_of("content", c, CompileOptions(target="c"))]
    other = tmp_path / "gcc"
    for text in ("#!/bin/sh\n", "#!/bin/sh\n\n"):
        other.write_text(text)
        other.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        keys.append(key_of("content", c, CompileOptions(target="c")))
    monkeypatch.setenv("CC", "cc")
    keys.append(key_of("content", c, CompileOptions(target="c")))
    assert len(set(keys)) == len(keys)
