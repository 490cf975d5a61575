"""Compiling with finished programs kept in a cache of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from polyc.graph_driver import compile_model as front
from polyc.graph_driver.known import key
from polyc.graph_driver.running.model import Model


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of finished programs, which are kept; who edits polyc meanwhile does no harm."""
    monkeypatch.setenv("POLYC_PROGRAMS", "1")
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(key, "identity", lambda: "this compiler")
    return tmp_path / "cache" / "programs"


def known(source: Any, **options: Any) -> Model:
    """The model from the cache; to compile it is an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front, "_anew", refuse)
        model = front.compile_model(source, **options)
    assert model.report().made
    return model


def new(source: Any, **options: Any) -> Model:
    """The model, which is not in the cache."""
    model = front.compile_model(source, **options)
    assert not model.report().made
    return model


def refuse(*_: object) -> Model:
    """Instead of a compilation."""
    raise AssertionError("compiled, although it is known")


@contextmanager
def counted() -> Iterator[list[Any]]:
    """The sources that are compiled inside."""
    calls: list[Any] = []
    anew = front._anew

    def counting(source: Any, options: Any) -> Model:
        calls.append(source)
        return anew(source, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front, "_anew", counting)
        yield calls
