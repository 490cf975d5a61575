"""`benchmarks.first_answer`: processes and their memory are seen with all that they start, tables add up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.first_answer.measure import Subject, measured
from benchmarks.first_answer.page import table
from benchmarks.first_answer.processes import ran, tree
from benchmarks.models import light_model, random_inputs

PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "held = bytearray(b'x') * 60_000_000; import time; time.sleep(0.3); sum(held)"])
"""


def test_memory_and_processors_are_those_of_all_processes() -> None:
    ended = ran([sys.executable, "-c", PARENT], os.environ, watch=True)
    assert ended.code == 0 and ended.peak > 60e6 and ended.processors > 0.1
    assert ran([sys.executable, "-c", "print(1)"], os.environ).out == "1\n"


def test_a_tree_of_processes_has_its_root() -> None:
    assert tree(os.getpid())[0] == os.getpid()


def test_ratios_are_of_networks_that_both_versions_compile() -> None:
    both = {"network": "a", "megabytes": 1.0, "errors": ["", ""], "onnxruntime": 0.1}
    both["found"] = [{"cold": 4.0, "memory": 2e6}, {"cold": 1.0, "memory": 1e6}]
    broken = {"network": "b", "megabytes": 1.0, "errors": ["no", ""], "onnxruntime": None, "found": [{}, {"cold": 9.0}]}
    lines = table([both, broken], ["old", "new"])
    assert lines[3] == "| b | 1.0 | no / runs |"
    assert "0.25" in lines[5] and "0.50" in lines[5] and "9.0" not in "".join(lines[4:])


@pytest.mark.long
def test_a_network_is_measured() -> None:
    path = light_model("squeezenet")
    row = measured(
        Subject("squeezenet", "model", path, random_inputs(path)), [Path(__file__).parents[1]], 1, False, True
    )
    assert not any(row["errors"]) and set(row["found"][0]) >= {"cold", "warm", "load", "memory", "cold processors"}
