"""`polyc explain`, `diff`, `bisect` and the YAML option of `inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import network, with_host_steps

from examples.matmul import matmul
from polyc.graph_driver import cli

MATMUL = "examples/matmul.py:matmul"


@pytest.fixture
def polyc(capfd: Any) -> Any:
    """Run the command in this process: (exit code, stdout, stderr)."""

    def run(*argv: object) -> tuple[int, str, str]:
        try:
            code = cli.main([str(a) for a in argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_explain_says_what_was_done_and_declined(polyc: Any) -> None:
    code, out, err = polyc("explain", MATMUL, "--dim", "M=512", "--dim", "N=512", "--dim", "K=512", "--threads", 1)
    assert (code, err) == (0, "")
    assert "computes   268,435,456 flops" in out and "intensity  85.33 flops per byte" in out
    assert "contraction S1: register tile" in out and "fits L" in out
    code, out, _ = polyc("explain", "examples/polybench/correlation.py:correlation")
    assert code == 0 and "declined:" in out and "M*(M*N + 8*N + 3) flops" in out


def test_explain_as_json_is_stable_data(polyc: Any) -> None:
    asked = ("explain", "examples/polybench/seidel_2d.py:seidel_2d", "--dim", "tsteps=20", "--threads", 1, "--json")
    first = polyc(*asked)
    assert first == polyc(*asked)
    data = json.loads(first[1])
    assert data["format"] == "polyc-explain" and data["kind"] == "operator"
    assert data["parallel_loops"] == ["t.in"] and data["work"]["flops"]["exact"]
    found = {(d["stage"], d["outcome"]) for d in data["decisions"]}
    assert ("vector", "declined") in found
    assert all(
        set(d) == {"stage", "subject", "what", "outcome", "reason", "figures", "text"} for d in data["decisions"]
    )


def test_explain_a_model(polyc: Any, tmp_path: Path) -> None:
    for name, model in (("net", network()), ("host", with_host_steps())):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(model.SerializeToString())
        code, out, _ = polyc("explain", path)
        assert code == 0 and "kernels" in out and "kernel " in out
        data = json.loads(polyc("explain", path, "--json", "--verbose")[1])
        assert data["kind"] == "model" and data["groups"] and data["kernels"]
        assert all(k["decisions"] is not None for k in data["kernels"])
        assert bool(data["host"]) == (name == "host") and all(h["reason"] for h in data["host"])


def test_yaml_goes_out_comes_back_and_is_compared(polyc: Any, tmp_path: Path) -> None:
    code, out, _ = polyc("inspect", MATMUL, "--stage", "schedule", "--yaml")
    assert code == 0 and out.startswith("operator: matmul\n")
    automatic = tmp_path / "a.yaml"
    automatic.write_text(out)
    assert polyc("inspect", MATMUL, "--stage", "schedule", "--yaml", "--schedule", automatic)[1] == out
    assert polyc("diff", MATMUL, automatic)[:2] == (0, "no difference\n")
    s = matmul.scop().schedule()
    first, second = tmp_path / "first.yaml", tmp_path / "second.trace"
    first.write_text(s.tile(["i", "j"], [32, 32]).to_yaml())
    second.write_text(s.tile(["i", "j"], [64, 32]).parallel("i.out").save())
    assert polyc("diff", MATMUL, first, second)[1] == "tile of i 32 -> 64\ni.out became parallel\n"
    changes = json.loads(polyc("diff", MATMUL, first, second, "--json")[1])["changes"]
    assert [(c["what"], c["subject"]) for c in changes] == [("tile", "i"), ("mark", "i.out")]
    first.write_text(first.read_text().replace("i // 32", "i / 32"))
    code, _, err = polyc("diff", MATMUL, first)
    assert code == 1 and err.startswith("polyc: line 8: for S0: 'i / 32' is not affine") and err.count("\n") == 1
    assert polyc("inspect", MATMUL, "--stage", "loops", "--yaml")[0] == 2
    assert polyc("diff", MATMUL, tmp_path / "none.yaml")[0] == 2


def test_bisect_finds_the_refused_step(polyc: Any, tmp_path: Path) -> None:
    """A loop over time cannot be parallel: the third step is the first that is refused."""
    trace = tmp_path / "t.trace"
    steps = [("reverse", {"loop": "i"}), ("reverse", {"loop": "i"}), ("parallel", {"loop": "t"})]
    trace.write_text("".join(json.dumps({"do": n, **a}) + "\n" for n, a in steps))
    where = "examples/polybench/jacobi_1d.py:jacobi_1d"
    code, out, _ = polyc("bisect", where, trace, "--dim", "tsteps=5")
    assert code == 0 and out.startswith("step 3 is illegal: ") and "before it:" in out
    assert json.loads(polyc("bisect", where, trace, "--dim", "tsteps=5", "--json")[1])["step"] == 3
    trace.write_text(matmul.scop().schedule().tile(["i", "j"], [8, 8]).save())
    assert polyc("bisect", MATMUL, trace)[1] == "all 1 steps are accepted\n"


def test_bisect_finds_the_step_that_slows_down(polyc: Any, tmp_path: Path) -> None:
    """Every prefix is compiled and run; the factor decides what counts as slower."""
    good = matmul.scop().schedule().distribute("i")
    good = good.permute("i_1", "k", "j_1").vectorize("j_1", 4)
    slow = good.split("i_1", 1).split("k", 2).split("k.out", 1)
    trace = tmp_path / "t.trace"
    trace.write_text(slow.save())
    sizes = ["--dim", "M=96", "--dim", "N=96", "--dim", "K=96", "--threads", 1]
    code, out, err = polyc("bisect", MATMUL, trace, "--slower", 1000, *sizes)
    assert code == 0 and out.count(" ms ") == len(slow.trace) + 1 and "no step makes it slower" in out, err
    code, out, _ = polyc("bisect", MATMUL, trace, "--slower", 1e-6, *sizes)
    assert code == 0 and "step 1 makes it" in out
    code, _, err = polyc("bisect", MATMUL, trace, "--slower", 2)
    assert code == 1 and "needs values for M, K, N" in err


def test_options_are_taken_or_refused(polyc: Any, tmp_path: Path) -> None:
    """What is shown is what these options compile; none is ignored."""
    path = tmp_path / "net.onnx"
    path.write_bytes(network().SerializeToString())
    joined = polyc("explain", path)[1]
    assert "Conv+Relu" in joined
    code, out, _ = polyc("explain", path, "--select", "naive")
    assert code == 0 and "Conv+" not in out
    code, out, _ = polyc("explain", path, "--dtype", "f16")
    assert code == 0 and "cast      f32 to f16: 'x' (by --precision)" in out
    code, out, _ = polyc("inspect", path, "--stage", "graph", "--bind", "x=1")
    assert code == 1 and not out
    options = ("--planner", "exact"), ("--bind", "a=1"), ("--select", "naive"), ("--tasks",), ("--precision", "f16")
    for option in options:
        code, _, err = polyc("explain", MATMUL, *option)
        assert code == 2 and err == f"polyc: {option[0]} is for models, and {MATMUL} is an operator\n"


def test_checks_of_an_operator_are_left_out_where_asked(polyc: Any, tmp_path: Path) -> None:
    path = tmp_path / "chosen.py"
    path.write_text(
        "from polyc import dims, f32, i32, inout, op\nN, M = dims('N M')\n@op\n"
        "def chosen(X: f32[N], I: i32[M], Y: inout(f32[M])):\n    for i in range(M):\n        Y[i] = X[I[i]]\n"
    )
    for options, record, word in (((), True, "checked before"), (("--no-checks",), False, "not checked")):
        code, text, _ = polyc("inspect", path, "--stage", "loops", *options)
        assert code == 0 and ("bounds_record" in text) == record
        code, text, _ = polyc("explain", path, *options)
        assert code == 0 and f"(line 6, read): {word}" in text
    code, _, err = polyc("tune", path, "--no-checks")
    assert code == 2 and err == "polyc: --no-checks has no effect on polyc tune of an operator\n"


def test_in_place_results_are_explained(polyc: Any, tmp_path: Path) -> None:
    from onnx import helper
    from tiny_models import model_of

    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Softmax", ["b"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[3, 3]),
    ]
    path = tmp_path / "net.onnx"
    path.write_bytes(model_of(nodes, {"x": [1, 2, 64, 64]}, {"y": None}, {}).SerializeToString())
    _, out, _ = polyc("explain", path)
    assert "Softmax is in place ('c' over 'b'): each element is read before" in out
    assert "MaxPool is not in place ('b' over 'a'): element (" in out and "is still to be read" in out
