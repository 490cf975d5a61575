"""Names that C, its library or our helpers have taken are names like others in a program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from back_ends import C_COMPILER, execute

from polyc import Operator, op
from polyc.emit.listing import listing
from polyc.emit.names import KEYWORDS, LIBRARY, fitting, symbol
from polyc.emit.targets import host

TEXT = """
{size} = dims("{size}")
@op
def {name}({arg}: f32[{size}]) -> f32[{size}]:
    {result} = empty(({size},), f32)
    {local} = empty((3 * {size},), f32)
    for {loop} in range({size}):
        {local}[{loop}] = {arg}[{loop}] * 2
    {scalar} = max({local}[0], f32(1))
    for {loop} in range({size}):
        {result}[{loop}] = {local}[{size} - 1 - {loop}] + {scalar}
    return {result}
"""
SLOTS = ("size", "name", "arg", "result", "local", "loop", "scalar")
WORDS = (
    "register", "bsearch", "free", "abort", "aligned_alloc", "int64_t", "double", "buffers", "params", "runtime", "int",
    "NULL", "RAND_MAX", "max_f32", "floordiv_i64", "v8_f32", "strchr", "größe", "memset",
)  # fmt: skip


def program(shift: int) -> Operator:
    names = {slot: WORDS[(k + shift) % len(WORDS)] for k, slot in enumerate(SLOTS)}
    names["size"] = names["size"] if names["size"].isascii() else "n"  # sizes are ASCII
    return op.from_source(TEXT.format(**names), scope={})


@pytest.mark.skipif(C_COMPILER is None, reason="no C compiler")
@pytest.mark.parametrize("shift", range(len(WORDS)))
def test_every_name_in_every_place(shift: int) -> None:
    operator = program(shift)
    schedule = operator.schedule()
    x = np.arange(21, dtype=np.float32)
    for back_end in ("llvm", "c"):
        (got,) = execute(schedule.scop, schedule.tree, [x], back_end)
        np.testing.assert_array_equal(got, x[::-1] * 2 + 1, f"{back_end}, {WORDS[shift]}")


def test_a_listing_finds_the_loops_of_renamed_statements() -> None:
    operator = program(0)
    fn = operator.compile().function
    assert fitting(fn) is not fn
    text = listing(fn, host()).texts["c"]
    assert all(line.origin for line in text if line.text.strip().startswith(("for (", "/* loop")))


def test_other_names_stay() -> None:
    operator = op.from_source(TEXT.format(**{slot: slot + "_" for slot in SLOTS}), scope={})
    fn = operator.compile().function
    assert fitting(fn) is fn and symbol(fn.name) == fn.name


@pytest.mark.skipif(C_COMPILER is None, reason="no C compiler")
def test_all_that_headers_declare_is_known(tmp_path: Path) -> None:
    """Those that generated sources, headers and drivers include."""
    source, found = tmp_path / "all.c", tmp_path / "all.txt"
    headers = ("stdint.h", "stdlib.h", "string.h", "math.h", "stdio.h", "time.h")
    source.write_text("".join(f"#include <{h}>\n" for h in headers))
    done = subprocess.run([str(C_COMPILER), "-std=gnu11", "-fsyntax-only", "-aux-info", found, source], check=False)
    if done.returncode or not found.exists():
        pytest.skip("the compiler lists no declarations")
    declared = set(re.findall(r"(\w+) \(", found.read_text())) - {"", "sched_yield"}
    unknown = {n for n in declared if not n.startswith(("_", "sched_"))} - LIBRARY - KEYWORDS
    assert not unknown


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_kernels_of_gpus_are_ascii(target: str) -> None:
    operator = op.from_source(
        TEXT.format(**{slot: slot for slot in SLOTS} | {"name": "größe", "local": "straße"}), scope={}
    )
    assert operator.compile(target).source(target).isascii()
