"""Library operators, PolyBench kernels and random programs as GPU text: a slice of what `gpu_coverage.py` and
`gpu_fuzz.py` run whole."""

from __future__ import annotations

import gpu_coverage
import gpu_differential
import islpy as isl
import pytest
import simt
from executors import OPENCL, opencl_here
from random_programs import generate

from examples import polybench
from polyc.emit.gpu.devices import shim
from polyc.emit.gpu.lower import lower_gpu
from polyc.scheduler.strategies.auto import automatic

WHERE = tuple(n for n, missing in (("cuda", shim.compiler() is None), ("opencl", bool(opencl_here()))) if not missing)
pytestmark = pytest.mark.skipif(not WHERE, reason="neither a C++ compiler nor an OpenCL device: GPU text cannot run")
QUICK = {"library softmax_rows": 0, "library gather": 1, "polybench mvt": 1}


@pytest.mark.parametrize(("name", "size"), QUICK.items())
def test_an_operator_at_one_size(name: str, size: int) -> None:
    assert gpu_coverage.check(name, [size], WHERE).wrong == []


@pytest.mark.long
@pytest.mark.parametrize("name", gpu_coverage.NAMES)
def test_every_operator_at_three_sizes(name: str) -> None:
    assert gpu_coverage.check(name, where=WHERE).wrong == []


def test_names_that_exist_are_all_there() -> None:
    assert len(set(gpu_coverage.NAMES)) == len(gpu_coverage.NAMES) >= 140
    labels = {gpu_coverage.trial("library matmul", k).label for k in range(3)}
    assert labels == {"3x5 5x7", "7x19 19x11", "13x41 41x37"}


@pytest.mark.parametrize("seed", [40_000, 40_001, 40_002])
def test_random_programs_as_text(seed: int) -> None:
    """One of each kind: the automatic schedules, random bindings, random transformations and bindings."""
    found = gpu_differential.check(generate(seed), WHERE)
    assert found.failure is None and found.runs > 0


@pytest.mark.long
@pytest.mark.parametrize("first", range(40_000, 40_500, 10))
def test_many_random_programs_as_text(first: int) -> None:
    for seed in range(first, first + 10):
        found = gpu_differential.check(generate(seed), WHERE)
        assert found.failure is None, f"seed {seed}: {found.failure}"


def test_rows_at_places_that_data_decide_stay_where_they_are() -> None:
    """tensor_scatter with rows of 41 elements once ended in an error of the schedule."""
    s = automatic(gpu_coverage.trial("library tensor_scatter", 2).scop, simt.TARGET)
    assert any("a subscript in S1 depends on data" in note for note in s.notes) and simt.bound(s)


@pytest.mark.parametrize("seed", [60_018, pytest.param(60_087, marks=pytest.mark.long)])
def test_two_stages_of_a_reduction_over_a_triangle_are_planned_within_the_quota(seed: int) -> None:
    """Domains held their conditions on divisions seven times over; flow was asked for among all statements."""
    scop = generate(seed).operator(reassociate=True).scop()
    s = automatic(scop, OPENCL)
    assert any("then 16, then one" in note for note in s.notes)
    unknown = [b.dim(isl.dim_type.div) for x in s.scop.statements.values() for b in x.domain.get_basic_sets()]
    assert max(unknown) <= 3


def test_tiles_of_doubles_fit_the_registers_of_a_small_target() -> None:
    """2mm once got tiles of 8 x 8 doubles for a target with 128 registers, and was refused."""
    s = automatic(polybench.load("2mm").operator.scop(), OPENCL)
    assert simt.launches(lower_gpu(s.scop, s.tree, "kernel", OPENCL))
