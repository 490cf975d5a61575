"""Thresholds of Python's garbage collection while something compiles, and after it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from examples.matmul import matmul
from polyc import dims, empty, f32, op
from polyc.poly.collection import YOUNG, seldom_collected


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_few_inside_as_before_after() -> None:
    with seldom_collected():
        assert gc.get_threshold() == (YOUNG, 10, 10)
        with seldom_collected():
            assert gc.get_threshold()[0] == YOUNG
        assert gc.get_threshold()[0] == YOUNG
    assert gc.get_threshold() == (700, 10, 10)


def test_as_before_after_an_error() -> None:
    with pytest.raises(KeyError), seldom_collected():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (YOUNG + 1, 5, 5)])
def test_a_program_that_collects_seldom_itself(chosen: tuple[int, int, int]) -> None:
    gc.set_threshold(*chosen)
    with seldom_collected():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_what_somebody_sets_meanwhile_stays() -> None:
    with seldom_collected():
        gc.set_threshold(5000, 7, 7)
    assert gc.get_threshold() == (5000, 7, 7)


def test_the_last_thread_restores() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with seldom_collected():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with seldom_collected():
        thread.start()
        assert inside.wait(10)
    assert gc.get_threshold()[0] == YOUNG
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


def collections(call: Callable[[], object]) -> int:
    """How often garbage of any age was collected during a call."""
    begun = []

    def look(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            begun.append(info["generation"])

    gc.callbacks.append(look)
    try:
        call()
    finally:
        gc.callbacks.remove(look)
    return len(begun)


def test_compiling_collects_a_few_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path))
    matmul.compile(M=8, K=8, N=8, threads=1)  # imports
    assert collections(lambda: matmul.compile(M=61, K=67, N=71, threads=1)) <= 2
    assert gc.get_threshold() == (700, 10, 10)


n = dims("n")


@op
def doubled(x: f32[n]) -> f32[n]:
    y = empty((n,), f32)
    for i in range(n):
        y[i] = x[i] + x[i]
    return y


def test_the_making_of_a_kernel_is_one_compilation_from_its_translation_on() -> None:
    """Translation alone would be looked through some fifteen times."""
    doubled(np.ones(5, np.float32))
    looks: list[str] = []
    before = gc.get_threshold()
    gc.callbacks.append(lambda phase, info: looks.append(phase))
    gc.set_threshold(50, 2, 2)
    try:
        doubled(np.ones(7, np.float32))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.pop()
    assert len(looks) < 12
