"""What compiling took: spans, the table of `--timings`, the file of `--trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import network

from polyc.graph_driver.cli.command import main
from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.graph.timings import chrome_trace, timings
from polyc.poly.spans import Span, about, keep, recording, span


def test_spans_are_kept_while_somebody_records() -> None:
    with span("nobody"):
        pass
    with recording() as spans:
        with span("outer", size=3):
            with span("inner"):
                pass
            keep(*about([Span("far", 1.0, 2.0, 0.5, 7)], node="n"))
    with span("later"):
        pass
    assert [s.name for s in spans] == ["inner", "far", "outer"]
    inner, far, outer = spans
    assert outer.start <= inner.start <= inner.end <= outer.end and outer.about == {"size": 3}
    assert far.about == {"node": "n"} and far.process == 7 and Span(**far.data()) == far


def test_a_span_of_what_fails_is_kept() -> None:
    with recording() as spans, pytest.raises(KeyError), span("fails"):
        raise KeyError
    assert [s.name for s in spans] == ["fails"]


def test_a_trace_has_every_stage_and_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("POLYC_WORKERS", "2")
    model, out, trace = tmp_path / "net.onnx", tmp_path / "out", tmp_path / "trace.json"
    model.write_bytes(network().SerializeToString())
    options = ["--dim", "N=1", "--threads", "1"]
    assert main(["compile", str(model), "-o", str(out), "--trace", str(trace), "--timings", *options]) == 0
    said = capsys.readouterr().out
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    here = min(events, key=lambda e: e["ts"])["pid"]
    stages = {e["name"] for e in events if e["pid"] == here}
    assert stages >= {"start", "import", "passes", "groups", "operators", "kernels", "plan", "program", "save"}
    kernels = [e for e in events if e["cat"] == "kernel"]
    report = compile_model(str(model), threads=1, dims={"N": 1}).report()
    assert len(kernels) == report.distinct > 2 and here not in {e["pid"] for e in kernels}
    for kernel in kernels:
        inside = [e for e in events if e["pid"] == kernel["pid"] and _within(e, kernel)]
        assert {e["cat"] for e in inside} >= {"read", "schedule", "lower", "loops", "compile"}
        assert kernel["args"]["kernel"] and kernel["args"]["node"] and kernel["args"]["size"] > 0
    assert f"{len(kernels)} kernels in" in said and "those that took longest" in said


def _within(inner: dict[str, float], outer: dict[str, float]) -> bool:
    rounding = 0.2
    starts = outer["ts"] <= inner["ts"] + rounding
    return inner is not outer and starts and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + rounding


def test_equal_stages_are_added_up() -> None:
    spans = [
        Span("groups", 0.0, 2.0, 1.0, 1), Span("parts", 0.0, 0.5, 0.25, 1), Span("parts", 1.0, 1.5, 0.25, 1),
        Span("kernel", 0.5, 1.5, 0.75, 2, {"kernel": "Conv", "node": "c"}), Span("lower", 0.5, 1.0, 0.5, 2),
    ]  # fmt: skip
    text = [" ".join(line.split()) for line in timings(spans)]
    assert text[1:3] == ["groups 2.00 1.00", "parts 1.00 0.50"]
    assert text[3:5] == ["1 kernel in 1 process: 1.00 0.75", "lower 0.50 0.50"]
    assert text[-1] == "0.75 Conv 'c': lower 0.50"
    assert timings([]) and chrome_trace([])["traceEvents"] == []
