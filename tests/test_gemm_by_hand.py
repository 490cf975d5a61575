"""The worked example: bytes that it counts are those that one counts by hand, and its page names its steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import gemm_by_hand
from examples.gemm_by_hand import STEPS, Blocks, blocks_for, counted
from examples.matmul import matmul
from polyc.emit import targets
from polyc.poly.target import Target

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gemm-by-hand.md"


@pytest.fixture
def small() -> Target:
    """A machine with 16 registers of 8 floats, 2 KB of L1 and 8 KB of L2."""
    return replace(targets.host(), vector_bits=256, vector_registers=16, l1=2 << 10, l2=8 << 10)


def test_a_tile_is_as_large_as_the_registers(small: Target) -> None:
    b = blocks_for(small)
    assert b == Blocks(rows=6, columns=16, block=60, depth=16, height=60)


def test_counted_bytes(small: Target) -> None:
    m, n, k = 120, 96, 64  # A has 30 KB, B 24, C 45: nothing stays
    b = Blocks(rows=6, columns=16, block=30, depth=16, height=60)
    found = {name: counted(STEPS[name](matmul.scop(M=m, N=n, K=k).schedule(), b), small) for name in STEPS}
    assert found["three loops"].registers == 4 * (2 * m * n * k + 2 * m * n)
    tiles, packed, blocks, cut = (found[n] for n in ("register tiles", "pack A", "blocks of rows", "cut the sum"))
    assert tiles.registers == 4 * (m * k * (n // 16) + k * n * (m // 6) + 2 * m * n)
    assert cut.registers == 4 * (m * k * (n // 16) + k * n * (m // 6) + 2 * m * n * (k // 16))
    assert packed == blocks  # packing loads nothing less: it makes what fits stay
    assert cut.l1 < tiles.l1 and tiles.l2 < found["three loops"].l2


def test_the_page_names_every_step() -> None:
    text = PAGE.read_text(encoding="utf-8")
    begin, end = gemm_by_hand.MARKS
    measured = text.split(begin)[1].split(end)[0]
    for name in STEPS:
        assert measured.count(f"| {name} |") == 2 and f"**{name}.**".lower() in text.lower()


def test_the_page_shows_what_one_call_does() -> None:
    """Its first two pieces of Python make one schedule, which computes the product."""
    text = PAGE.read_text(encoding="utf-8")
    call, steps = (part.split("```")[0] for part in text.split("```python\n")[1:3])
    made: list[Any] = []
    for code in (call, steps):
        space: dict[str, Any] = {"matmul": matmul}
        exec(code, space)
        made.append(space["s"])
    assert made[0].program("matmul") == made[1].program("matmul") == steps
    a, b = (np.random.default_rng().integers(-4, 5, shape).astype("f4") for shape in ((125, 30), (30, 37)))
    np.testing.assert_array_equal(matmul.compile(schedule=made[0])(a, b), a @ b)
