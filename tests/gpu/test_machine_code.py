"""SASS: the innermost loop of a matrix product, and no spills anywhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sass
from programs import ALL
from sass import needs_disassembler
from small_operators import product
from texts import needs_nvidia

pytestmark = [needs_nvidia, needs_disassembler]
ARCHITECTURES = ["sm_80", pytest.param("sm_90", marks=pytest.mark.long)]


def share(found: Counter[str], *kinds: str) -> float:
    return sum(n for name, n in found.items() if name.startswith(kinds)) / found.total()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_inner_loop_is_wide_shared_loads_and_products(arch: str, tmp_path: Path) -> None:
    kernel = product(4096, 4096, 4096).compile(target=arch)
    (used,) = kernel.cubin().resources
    assert used.spill_loads == used.spill_stores == 0 and used.registers <= 128
    (code,) = sass.kernels(kernel.cubin().image, tmp_path).values()
    loop = sass.hottest(code)
    assert share(loop, "FFMA", "LDS.128") >= 0.9 and share(loop, "FFMA") >= 0.85
    everywhere = Counter(name for name, _ in code)
    narrow = [n for n in everywhere if n.startswith(("LDS", "LDG.", "LDGSTS", "STG")) and ".128" not in n]
    assert everywhere["LDGSTS.E.BYPASS.128"] == 2, "asynchronous copies, before the loop and in it"
    assert narrow == [], "all accesses but the transposed stores to shared memory are 16 bytes wide"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_sizes_that_come_with_the_call(arch: str, tmp_path: Path) -> None:
    kernel = ALL["matmul"][0].compile(target=arch)
    assert all(r.spill_loads == r.spill_stores == 0 for r in kernel.cubin().resources)
    found = sass.kernels(kernel.cubin().image, tmp_path)
    everywhere = Counter(name for name, _ in found["matmul_0_wide"])
    assert [n for n in everywhere if n.startswith(("LDS", "LDG.", "LDGSTS", "STG")) and ".128" not in n] == []
    for code in found.values():
        loop = sass.hottest(code)
        assert [n for n in loop if n.startswith("LDS")] == ["LDS.128"]


@pytest.mark.long
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ALL)
def test_no_spills(name: str, arch: str) -> None:
    kernel: Any = ALL[name][0].compile(target=arch)
    assert all(r.spill_loads == r.spill_stores == 0 for r in kernel.cubin().resources)
