"""A few programs of `tests/bounds_fuzz.py`; thousands are a command."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent))
from bounds_fuzz import Nested, check


@pytest.mark.parametrize("seed", (16, 17, 19, 20, 21, 22, 23, 70005))
def test_random_programs_agree_on_what_is_outside(seed: int) -> None:
    assert not check(seed, sanitise=False)["refused"]


@pytest.mark.parametrize("seed", (3, 8, 21))
def test_random_programs_with_loops_below_conditions(seed: int) -> None:
    assert not check(seed, sanitise=False, writer=Nested)["refused"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("seed", (16, 19))
def test_the_address_sanitiser_sees_nothing(seed: int) -> None:
    assert not check(seed, sanitise=True)["refused"]
