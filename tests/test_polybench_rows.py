"""PolyBench's benchmark: its C is read as it is written, inputs fit, and ratios count only who is right."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks.polybench import contender, sources
from benchmarks.polybench.contender import Loop, of_polyc
from benchmarks.polybench.page import page
from benchmarks.polybench.rows import _estimated, _ratios, known_times
from benchmarks.polybench.sources import Parameter
from benchmarks.polybench.subjects import CLASS_OF, difference, near, subject
from benchmarks.polybench.tasks import Case
from examples.polybench import MODULES

IN_C = """static
void kernel_mvt(int n, DATA_TYPE alpha,
   DATA_TYPE POLYBENCH_1D(y_1,N,n),
   DATA_TYPE POLYBENCH_2D(A, N, M, n, m))
{
"""


def test_parameters_of_c_are_read() -> None:
    assert sources.parameters(IN_C) == [
        Parameter("n", "size", "int"), Parameter("alpha", "scalar", "DATA_TYPE"),
        Parameter("y_1", "array", "DATA_TYPE", ("N",)), Parameter("A", "array", "DATA_TYPE", ("N", "M")),
    ]  # fmt: skip
    text = sources.wrapper(Path("mvt.c"), "mvt", sources.parameters(IN_C))
    assert "kernel_mvt(N, *(DATA_TYPE *)arrays[0], arrays[1], arrays[2])" in text


def test_every_kernel_has_a_class() -> None:
    assert set(CLASS_OF) == set(MODULES)


@pytest.mark.parametrize(("name", "single"), [("gemver", False), ("gemver", True), ("jacobi-1d", True)])
def test_the_kernel_is_timed_on_what_is_checked(name: str, single: bool, tmp_path: Path) -> None:
    given = subject(name, "MINI", single, seed=5)
    call = of_polyc(given, Case(given, "MINI", single, 5).of_polyc(1))
    least, middle = Loop(call, tmp_path).run(7)  # in place: each of the calls starts with the same values
    assert 0 < least <= middle
    wide = {k: np.asarray(v, np.float64) for k, v in given.values.items()}
    for got, wanted in zip(call.results, given.reference(**wide, **given.constants), strict=True):
        assert got.dtype == (np.float32 if single else np.float64)
        assert difference(got, wanted) < (1e-4 if single else 1e-12)


def test_sizes_nearby() -> None:
    assert [near(n, "powers") for n in (1, 40, 60, 120, 400)] == [1, 32, 64, 128, 512]
    assert [near(n, "primes") for n in (2, 40, 60, 120, 400)] == [2, 41, 61, 127, 401]
    given = subject("gemm", "SMALL-primes")
    assert given.values["A"].shape == (61, 83) and given.known()["NJ"] == 71


def test_memory_of_a_contender_is_poisoned() -> None:
    assert np.isnan(contender.placed((3, 5), np.float64)).all() and contender.placed((7,), "f4").ctypes.data % 4096 == 0


def test_peers_that_are_wrong_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "peers.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([
            ("kernel", "peer", "dtype", "size", "threads", "seconds"), ("gemm", "gccf", "double", "LARGE", 1, 0.2),
            ("gemm", "ppcg", "double", "LARGE", 2, 0.05), ("gemm", "polly", "double", "LARGE", 1, 0.1),
            ("gemm", "polly", "float", "LARGE", 1, 0.01),
        ])  # fmt: skip
    known = known_times(path, "LARGE", single=False)["gemm"]
    ms = {"polyc 1": [20.0, 21.0], "gccf 1": [100.0, 101.0], "polly 1": [10.0, 10.0]}
    assert _estimated(ms, known, 1) == {} and _estimated(ms, known, 2) == {"ppcg 2": 25.0}
    row = {"threads": 1, "ms": ms, "estimated": {"ppcg 1": 25.0}, "wrong": ["polly 1"]}
    assert _ratios(row) == {"best": "ppcg 1", "ratio": 1.25, "over_gcc": 5.0}
    assert _ratios(row | {"wrong": ["polyc 1"]})["ratio"] is None
    full = row | _ratios(row) | {
        "kernel": "gemm", "class": "dense algebra", "size": "LARGE", "single": False, "symbolic": False, "late": [],
        "failed": {}, "compile": {"polyc 1": 0.3}, "difference": {"polly 1": 0.5},
    }  # fmt: skip
    text = page([full])
    assert "| gemm | 20.00 | 100.0 | wrong | ppcg 1 ~ | 1.25 | 5.00 | 0.30 |" in text
    assert "gemm: polly 1 differs by 5.0e-01" in text
