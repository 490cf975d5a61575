"""A fixed slice of ONNX's node suite in every run, all of it among the long tests."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .cases import all_cases, class_of, operator_of
from .running import run_all, run_case
from .table import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "onnx-coverage.md"

# One or two cases of each mechanism: values that decide shapes, definitions, unrolled loops,
# empty tensors, 16-bit floats, quantised products, data-dependent subscripts, several outputs.
COMPILED = [
    *("add_bcast", "clip_default_min", "cast_FLOAT_to_FLOAT16", "bitcast_float32_to_int32"),
    *("reduce_l2_do_not_keepdims_random", "cumsum_1d_reverse_exclusive", "slice_neg_steps", "reflect_pad"),
    *("scatter_elements_with_reduction_max", "maxpool_with_argmax_2d_precomputed_pads", "averagepool_2d_ceil"),
    *("layer_normalization_2d_axis1", "attention_4d_fp16", "rotary_embedding_3d_input"),
    *("resize_downsample_scales_cubic_antialias", "stft", "qlinearmatmul_2D_uint8_float32"),
    *("dequantizelinear_blocked", "gru_seq_length", "loop11", "if"),
]
HOSTED = ["nonzero_example", "sequence_insert_at_back", "string_concat", "cast_FLOAT_to_FLOAT8E5M2"]
WRONG = ["dft_inverse"]  # see `KNOWN` in table.py


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    outcome = run_case(_case(name))
    assert outcome.state == "pass", outcome.reason
    assert not outcome.host


@pytest.mark.parametrize("name", HOSTED)
def test_what_runs_on_the_host_is_named(name: str) -> None:
    outcome = run_case(_case(name))
    assert outcome.state == "pass", outcome.reason
    assert outcome.host and all(reason for _, reason in outcome.host)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_counted_as_one(name: str) -> None:
    assert run_case(_case(name)).state == "fail"


def _case(name: str) -> object:
    return next(c for c in all_cases() if c.name == f"test_{name}")


def test_the_main_class_is_the_one_that_is_counted() -> None:
    assert Counter(map(class_of, all_cases()))["main"] == 1408


@pytest.mark.long
def test_whole_suite_and_its_page() -> None:
    cases = all_cases()
    outcomes = run_all(cases, jobs=2)
    classes = {c.name: class_of(c) for c in cases}
    main = [o for o in outcomes if classes[o.name] == "main"]
    assert sum(o.state == "pass" for o in main) >= 1350
    assert sum(o.compiled for o in main) >= 1150
    assert sum(o.state == "pass" for o in outcomes) >= 1600
    assert PAGE.read_text() == page(outcomes, classes, {c.name: operator_of(c) for c in cases})
