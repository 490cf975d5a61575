"""`polyc inspect --html`, `--json` and `--schedule` from the command line."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from operators import EXAMPLES, scop_of

from polyc.graph_driver import cli

MATMUL = f"{EXAMPLES / 'matmul.py'}:matmul"
JACOBI = f"{EXAMPLES / 'polybench' / 'jacobi_1d.py'}:jacobi_1d"


@pytest.fixture
def polyc(capfd: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command in this process: (exit code, stdout, stderr)."""
    monkeypatch.delenv("POLYC_DEBUG", raising=False)

    def run(*argv: object) -> tuple[int, str, str]:
        code = cli.main([str(a) for a in argv])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def embedded(page: Path) -> Any:
    """The document inside a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert found
    return json.loads(html.unescape(found[1]))


def test_the_page_holds_the_document_that_json_prints(polyc: Any, tmp_path: Path) -> None:
    code, out, err = polyc("inspect", JACOBI, "--dim", "tsteps=3", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["format"], document["version"], document["kind"]) == ("polyc-inspect", 1, "operator")
    assert polyc("inspect", JACOBI, "--dim", "tsteps=3", "--html", tmp_path / "p.html") == (0, "", "")
    assert embedded(tmp_path / "p.html") == document


def test_a_saved_schedule_is_shown(polyc: Any, tmp_path: Path) -> None:
    saved = tmp_path / "mine.jsonl"
    saved.write_text(scop_of("matmul").schedule().tile(["i", "j"], [4, 8]).parallel("i.out").save())
    assert polyc("inspect", MATMUL, "--schedule", saved, "--html", tmp_path / "p.html") == (0, "", "")
    data = embedded(tmp_path / "p.html")
    assert [s["name"] for s in data["schedule"]["steps"]] == ["tile", "parallel"]
    assert data["schedule"]["origin"] == "mine.jsonl"
    assert data["tree"]["members"][0] | {"values": 0} == {
        "key": "loop:i.out", "name": "i.out", "kind": "parallel", "factor": None, "values": 0, "most": "(M + 3) // 4",
    }  # fmt: skip
    code, out, err = polyc("inspect", MATMUL, "--schedule", saved, "--stage", "loops", "--dim", "M=64")
    assert (code, err) == (0, "") and "for i_out in range(0, 16)" in out


def test_an_operator_is_run_for_its_time(polyc: Any, tmp_path: Path) -> None:
    """Predicted beside measured, in the document, on the page and in what `explain` prints."""
    sizes = [x for n in "MNK" for x in ("--dim", f"{n}=64")] + ["--threads", "1"]
    code, out, err = polyc("inspect", MATMUL, *sizes, "--measure", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)["time"]
    assert 0 < found["measured"] < 1 and found["predicted"]["seconds"] > 0 and found["threads"] == 1
    assert polyc("inspect", MATMUL, *sizes, "--measure", "--html", tmp_path / "p.html") == (0, "", "")
    assert embedded(tmp_path / "p.html")["time"]["measured"] > 0
    code, out, err = polyc("explain", MATMUL, *sizes, "--measure", "--target", "c")
    assert (code, err) == (0, "") and "  predicted  " in out and "  measured   " in out
    assert json.loads(polyc("explain", MATMUL, *sizes, "--json")[1])["measured"] is None
    assert json.loads(polyc("inspect", MATMUL, "--json")[1])["time"]["predicted"] is None


def test_a_kernel_of_a_model_is_run_for_its_time(polyc: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", 300]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "m", [x], [y])
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    code, out, err = polyc("inspect", path, "--kernel", "0", "--measure", "--threads", "1", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["time"]["measured"] > 0 and json.loads(out)["sizes"] == {"N": "1"}
    code, _, err = polyc("inspect", path, "--kernel", "0", "--measure", "--dim", "N=any", "--json")
    assert code == 2 and "at sizes that are numbers" in err


UNMEASURED = {
    "free sizes": (["--json"], 1, "to run matmul it needs values for M, K, N"),
    "a stage": (["--stage", "loops"], 2, "--measure is of an operator's page"),
    "a GPU": (["--target", "cuda", "--json"], 2, "--measure runs operators on this machine's CPU, not for 'cuda'"),
    "another machine": (
        ["--target", "neoverse-n1", "--json", *"--dim M=4 --dim N=4 --dim K=4".split()],
        1,
        "cannot run",
    ),
}


@pytest.mark.parametrize("what", UNMEASURED)
def test_what_cannot_be_run_is_not_measured(polyc: Any, what: str) -> None:
    options, expected, text = UNMEASURED[what]
    code, out, err = polyc("inspect", MATMUL, "--measure", *options)
    assert (code, out) == (expected, "") and text in err and err.count("\n") == 1


WRONG = {
    "no such file": (["--schedule", "nothing.jsonl"], 2, "cannot read the schedule nothing.jsonl"),
    "not a trace": (["--schedule", "bad.jsonl"], 1, "line 1 of the trace"),
    "unknown size": (["--dim", "Q=3"], 2, "has no size 'Q' (it has M, K, N)"),
    "not a number": (["--dim", "M=many"], 2, "expected NAME=NUMBER, got 'M=many'"),
    "not whole": (["--dim", "M=1.5"], 2, "size M is a whole number, not 1.5"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use_is_one_line(polyc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"what": 1}\n')
    options, expected, text = WRONG[what]
    code, out, err = polyc("inspect", MATMUL, *options, "--html", tmp_path / "p.html")
    assert (code, out) == (expected, "") and text in err and err.count("\n") == 1


def test_a_missing_constant_says_how_to_give_it(polyc: Any, tmp_path: Path) -> None:
    code, _, err = polyc("inspect", JACOBI, "--html", tmp_path / "p.html")
    assert code == 2 and "compile-time constant tsteps" in err and "--dim NAME=NUMBER" in err
