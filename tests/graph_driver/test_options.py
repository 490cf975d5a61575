"""Options of compiling: on every kind of target each has an effect or is refused, and all commands run one pipeline."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tiny_models import model_of

from polyc.emit.c.cc import find_compiler
from polyc.graph_driver import cli, memory
from polyc.graph_driver.artifacts.c_export import export_c
from polyc.graph_driver.artifacts.package import is_package
from polyc.graph_driver.backends.registry import OWN, c_sources, platform_of
from polyc.graph_driver.cli.compile import OF_COMPILING
from polyc.graph_driver.cli.models import document_of_model, model_stage
from polyc.graph_driver.compile_model import compile_model, compile_with
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.passes.manager import BY_NAME, PASSES
from polyc.graph_driver.worker import tuned as use
from polyc.poly.errors import ArgumentError, ModelError, OptionError


def perceptron() -> onnx.ModelProto:
    """A product, Relu and Softmax over any batch: two kernels, or three that are not joined."""
    rng = np.random.default_rng(0)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["g"]),
        onnx.helper.make_node("Relu", ["g"], ["r"]),
        onnx.helper.make_node("Softmax", ["r"], ["y"], axis=0),
    ]
    return model_of(nodes, {"x": ["batch", 12]}, {"y": ["batch", 20]}, {"w": rng.standard_normal((12, 20), np.float32)})


NUMBERS = CompileOptions(threads=1, dims={"batch": 3})
WHERE: dict[str, CompileOptions] = {
    "cpu": NUMBERS,
    "c": replace(NUMBERS, target="c"),
    "gpu": replace(NUMBERS, target="sm_80", threads=None),
    "c99": NUMBERS,
    "symbolic": replace(NUMBERS, dims={"batch": (1, 50)}),
}
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
EVERYWHERE = [pytest.param(w, marks=needs_compiler) if w == "c" else w for w in WHERE]

ASKED: dict[str, tuple[Any, set[str]]] = {  # a value of each option, and where it is refused
    "target": ("cpu", set()),
    "threads": (2, {"gpu", "c99"}),
    "dims": ({"batch": 4}, set()),
    "shapes": ({"x": (5, 12)}, set()),
    "fuse": (False, set()),
    "memory_limit": (1, set()),
    "progress": (lambda *_: None, set()),
    "exact": (True, set()),
    "reproducible": (True, set()),
    "symbolic": (True, {"gpu", "c99"}),
    "passes": (["dead-code"], set()),
    "disable": (["algebra"], set()),
    "fast_math": (True, set()),
    "bind": ({"x": 1.0}, set()),
    "planner": ("two-cursor", set()),
    "memory": ("minimal", {"c", "gpu", "c99", "symbolic"}),
    "tasks": (True, {"cpu", "c", "gpu", "c99", "symbolic"}),  # of a CPU because `NUMBERS` has one thread
    "tuned": (True, {"gpu", "c99"}),
    "precision": ("f16", set()),
    "keep_f32": (["Softmax"], set()),
    "contiguous": ([["g0", "g1"]], {"gpu", "c99", "symbolic"}),
    "layouts": ("blocked", {"gpu", "symbolic"}),
    "strict_annotations": (True, set()),
    "strict_shapes": (True, set()),
    "checks": (True, set()),
    "tier": ("fast", {"gpu", "c99"}),
    "narrow_only": (["Softmax"], set(WHERE)),  # without a precision
    "max_error": (0.1, set(WHERE)),
    "data": ({"x": np.zeros((3, 12), np.float32)}, set(WHERE)),
    "allow_downcast": (True, set(WHERE)),  # all of these compute in f64
}


def compiled(where: str, options: CompileOptions, folder: Path) -> Any:
    """The report of compiling the perceptron there."""
    if where == "c99":
        return export_c(perceptron(), folder / "c", "net", options)[0]
    return compile_with(perceptron(), options).report()


def test_every_option_is_in_the_table() -> None:
    assert set(ASKED) == {f.name for f in fields(CompileOptions)}


@pytest.mark.parametrize("where", EVERYWHERE)
def test_an_option_without_effect_is_refused_in_one_line(where: str, tmp_path: Path) -> None:
    options = WHERE[where]
    for name, (value, refused) in ASKED.items():
        if where not in refused:
            continue
        given = replace(options, **{name: value})
        if name == "symbolic":
            given = replace(given, dims={})
        with pytest.raises(ModelError if name == "symbolic" else OptionError) as error:
            compiled(where, given, tmp_path)
        text = str(error.value)
        assert "\n" not in text and (name in text or name == "symbolic" and "as numbers (--dim NAME=V)" in text)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_other_options_have_their_effect(where: str, tmp_path: Path) -> None:
    options = WHERE[where]
    plain = compiled(where, options, tmp_path)
    assert not [p for p in plain.passes if p.startswith(("fast-math", "precision"))]
    assert compiled(where, replace(options, fuse=False), tmp_path).kernels > plain.kernels
    with pytest.raises(ModelError, match="the arena needs"):
        compiled(where, replace(options, memory_limit=1), tmp_path)
    assert _pipeline(where, passes=["dead-code"]) == ["dead-code"]
    assert _pipeline(where, disable=["algebra"]) == [n for n in _pipeline(where) if n != "algebra"]
    assert set(_pipeline(where, fast_math=True)) == {*_pipeline(where), "fast-math"}
    assert _pipeline(where, exact=True) == [n for n in _pipeline(where) if BY_NAME[n].exact]
    half = compiled(where, replace(options, precision="f16", keep_f32=["Softmax"]), tmp_path)
    assert any(p.startswith("precision") for p in half.passes)
    assert half.weight_bytes < plain.weight_bytes


def _pipeline(where: str, **options: Any) -> list[str]:
    """The passes that compiling there runs (a test below shows that)."""
    asked = replace(WHERE[where], **options)
    platform = c_sources() if where == "c99" else platform_of(asked.target, asked.threads)
    return [p.name for p in asked.pipeline(platform)]


@pytest.mark.parametrize("where", ["cpu", "gpu", "symbolic"])
def test_the_named_planner_makes_the_plan(where: str) -> None:
    for name in memory.PLANNERS:
        assert compile_with(perceptron(), replace(WHERE[where], planner=name)).plan.planner == name


def test_c_sources_take_the_named_planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.graph_driver.memory import choose

    taken: list[str] = []
    for name, plan in memory.PLANNERS.items():
        monkeypatch.setitem(choose.PLANNERS, name, lambda *t, n=name, p=plan, **how: taken.append(n) or p(*t, **how))
    compiled("c99", replace(NUMBERS, planner="best-fit"), tmp_path)
    assert set(taken) == {"best-fit"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"planner": "none"}, "there is no planner 'none'; planners are greedy-by-size"),
        ({"keep_f32": ["Relu"]}, "keep_f32 has no effect without a precision"),
        ({"fast_math": True, "passes": ["dead-code"]}, "fast_math has no effect with passes"),
        ({"tasks": True, "threads": 1}, "tasks has no effect for one thread: independent steps run at the same time"),
        ({"exact": True, "passes": ["winograd"]}, "'winograd' rounds elsewhere"),
        (
            {"target": "sm_80", "passes": ["integer-pairs"]},
            "pass 'integer-pairs' is not for the back end gpu: products",
        ),
        ({"target": "sm_80", "passes": ["external"]}, "pass 'external' is not for the back end gpu: they cannot call"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        compile_model(perceptron(), dims={"batch": 2}, **options)


# ---- one list of passes ----


OF_PAIRS = {  # of machines that multiply bytes, or pairs, in one instruction
    "integer-pairs", "quantised-convolutions", "reciprocals", "bf16-pairs", "weight-panels", "byte-images",
    "byte-products",
}  # fmt: skip
MISSING = {  # what each back end does without
    "cpu": set(),
    "c": OF_PAIRS,
    "gpu": OF_PAIRS | {"external"},
    "c99": OF_PAIRS | {"external", "winograd"},
    "symbolic": set(),
}


def names(lines: Any) -> list[str]:
    return [str(line).removeprefix("# ").partition(":")[0] for line in lines]


@pytest.mark.parametrize("where", EVERYWHERE)
def test_what_compiles_shows_and_explains_runs_the_same_passes(where: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(perceptron(), path)
    options = WHERE[where]
    ran = names(compiled(where, options, tmp_path).passes)
    assert set(ran) == {p.name for p in PASSES if p.default} - MISSING[where]
    assert ran == _pipeline(where)
    if where == "c99":
        options = replace(options, target="c99")
    known = {p.name for p in PASSES}
    ((_, text),) = model_stage(path, "graph", options, None)
    assert ran == [n for n in names(line for line in text.splitlines() if line.startswith("# ")) if n in known]
    assert ran == names(document_of_model(path, options)["passes"])


def test_every_pass_says_why_back_ends_do_without_it() -> None:
    for p in PASSES:
        suits = [b.name for b in OWN if p.suits(b)]
        assert suits, f"no back end is able to '{p.needs}'"
        assert bool(p.limit) == (len(suits) < len(OWN)), f"{p.name} says why others do without it"


# ---- the command line ----


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A model of one operator, and the same compiled."""
    path, folder = tmp_path / "one.onnx", tmp_path / "one.polyc"
    onnx.save(model_of([onnx.helper.make_node("Softmax", ["x"], ["y"])], {"x": [2, 3]}, {"y": [2, 3]}, {}), path)
    compile_model(path, threads=1).save(folder)
    return path, folder


GIVEN = {  # a value on the command line of each option of compiling
    "target": "c", "threads": "1", "bind": "x=1", "exact": None, "reproducible": None,
    "passes": "algebra", "disable": "algebra",
    "memory": "minimal",
    "select": "naive", "planner": "exact", "tasks": None, "tuned": None, "fast-math": None, "precision": "f16",
    "layouts": "blocked", "keep-op-borders": None, "strict-annotations": None, "no-checks": None,
    "keep-f32": "Softmax", "contiguous": "y,z", "memory-limit": "1",
    "tier": "fast", "narrow-only": "Softmax", "max-error": "0.1", "allow-downcast": None,
}  # fmt: skip


@pytest.mark.parametrize("command", ["run", "inspect", "explain"])
def test_options_of_compiling_are_refused_beside_a_compiled_directory(
    command: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert {n.replace("-", "_") for n in GIVEN} == set(OF_COMPILING) - {"data"}
    folder = files[1]
    assert is_package(folder)
    offered = set(GIVEN) - ({"memory-limit"} if command == "run" else {"memory-limit", "contiguous", "tier"})
    for option in sorted(offered):
        value = GIVEN[option]
        given = [f"--{option}", *([] if value is None else [value])]
        stage = ["--stage", "plan"] if command == "inspect" else []
        assert cli.main([command, str(folder), *stage, *given]) == 2, option
        assert capsys.readouterr().err == f"polyc: --{option} says how to compile, and {folder} is compiled already\n"


def test_the_command_line_refuses_as_wrong_usage(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = files[0]
    for command, given, said in (
        ("run", ["--target", "sm_80", "--tasks"], "tasks has no effect for target sm_80: they are threads of a CPU"),
        ("inspect", ["--target", "sm_80", "--threads", "2"], "threads has no effect for target sm_80"),
        ("explain", ["--target", "sm_80", "--tuned"], "tuned has no effect for target sm_80"),
        ("compile", ["--target", "c", "--tasks"], "tasks has no effect for C sources: they have one thread"),
        ("run", ["--select", "naive", "--keep-op-borders"], "--keep-op-borders has no effect beside --select naive"),
        ("run", ["--keep-f32", "Softmax"], "keep_f32 has no effect without a precision"),
    ):
        assert cli.main([command, str(path), *given]) == 2, given
        err = capsys.readouterr().err
        assert err.startswith(f"polyc: {said}") and err.count("\n") == 1
    with pytest.raises(SystemExit) as left:
        cli.main(["run", str(path), "--threads", "0"])
    assert left.value.code == 2 and "threads are a number of at least 1, not '0'" in capsys.readouterr().err
    assert cli.main(["run", str(path), "--differential", "--mode", "eager"]) == 2
    assert "--mode does not go with --differential" in capsys.readouterr().err
    assert cli.main(["tune", str(path), "--tasks"]) == 2
    assert "--tasks changes no kernel" in capsys.readouterr().err
    assert cli.main(["run", str(path), "--differential", "--planner", "exact", "--threads", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["guilty"] is None


def test_c_sources_can_be_looked_at(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files[0]
    assert cli.main(["inspect", str(path), "--target", "c99", "--stage", "c"]) == 0
    shown = capsys.readouterr().out
    assert cli.main(["compile", str(path), "--target", "c", "-o", str(tmp_path / "c")]) == 0
    capsys.readouterr()
    written = (tmp_path / "c" / "one_kernels.c").read_text()
    body = shown[shown.index("{") :].strip()
    assert body and body in written
    assert cli.main(["inspect", str(path), "--target", "c99", "--stage", "plan"]) == 0
    assert cli.main(["explain", str(path), "--target", "c99"]) == 0
    capsys.readouterr()
    for given, said in (
        (["inspect", str(path), "--target", "c99", "--stage", "llvm"], "C sources: there is no stage 'llvm'"),
        (["explain", str(path), "--target", "c99", "--measure"], "C sources do not run here"),
        (["inspect", str(path), "--target", "c99", "--threads", "2"], "threads has no effect for C sources"),
        (["run", str(path), "--target", "c99"], "unknown target 'c99'"),
    ):
        assert cli.main(given) == 2, given
        assert capsys.readouterr().err.startswith(f"polyc: {said}")


def test_threads_and_tuned_schedules_of_an_operator_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "doubled.py"
    source.write_text(
        "from polyc import dims, empty, f32, grid, op\n\nM, N = dims('M N')\n\n\n@op\n"
        "def doubled(A: f32[M, N]) -> f32[M, N]:\n    B = empty((M, N), f32)\n"
        "    for i, j in grid(M, N):\n        B[i, j] = A[i, j] + A[i, j]\n    return B\n"
    )
    asked: list[tuple[int, bool]] = []
    monkeypatch.setattr(use, "schedule_for", lambda scop, machine, threads: asked.append((threads, use.asked())))
    size = [f"{source}:doubled", "--dim", "M=2000", "--dim", "N=4000"]

    def shown(*arguments: str) -> str:
        assert cli.main([*arguments[:1], *size, *arguments[1:]]) == 0
        return capsys.readouterr().out

    one, two = (shown("inspect", "--stage", "schedule", "--threads", n) for n in ("1", "2"))
    assert "parallel" in two and "parallel" not in one and not asked
    assert shown("inspect", "--stage", "schedule", "--threads", "2", "--tuned") == two
    shown("explain", "--threads", "1", "--tuned")
    assert asked == [(2, True), (1, True)]
    assert cli.main(["inspect", *size, "--target", "sm_80", "--tuned"]) == 2
    assert capsys.readouterr().err == "polyc: --tuned is of a CPU, and sm_80 is none\n"


def test_a_model_is_the_same_however_its_options_are_given() -> None:
    x = {"x": np.random.default_rng().standard_normal((3, 12)).astype(np.float32)}
    by_name = compile_model(perceptron(), threads=1, dims={"batch": 3}, planner="best-fit", disable=["siblings"])
    by_place = compile_model(
        perceptron(), "cpu", 1, {"batch": 3}, None, True, None, None, False, None, None, ["siblings"]
    )
    assert by_name.report().passes == by_place.report().passes
    np.testing.assert_array_equal(by_name(x)["y"], by_place(x)["y"])
