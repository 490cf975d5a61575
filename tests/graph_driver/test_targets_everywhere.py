"""`--target` in every command: CPUs by LLVM's names and files of users' own; names that are wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_models import model_of

from examples.matmul import matmul
from polyc.emit import cpus, targets
from polyc.emit.gpu import targets as gpu_targets
from polyc.graph_driver import cli
from polyc.graph_driver.worker.compile_operator import auto_schedule
from polyc.poly.errors import BuildError

MATMUL = str(Path(__file__).resolve().parents[2] / "examples" / "matmul.py") + ":matmul"
SIZES = [w for p in ("M=16", "N=16", "K=16") for w in ("--dim", p)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    from onnx import helper

    path = tmp_path / "relu.onnx"
    made = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 40]}, {"y": [2, 40]}, {})
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A file that describes this machine but for its second-level cache."""
    path = tmp_path / "here.toml"
    path.write_text(f'base = "cpu"\nthreads = 1\nl2 = {targets.host().l2 * 2}\nl3 = {targets.host().l3 * 2}\n')
    return path


@pytest.fixture
def polyc(capfd: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.delenv("POLYC_DEBUG", raising=False)
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def run(*argv: object) -> tuple[int, str, str]:
        code = cli.main([str(a) for a in argv])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize(
    "command",
    [
        ["build", MATMUL, "--emit", "c,h,ll,asm,obj"], ["inspect", MATMUL, "--stage", "asm", *SIZES],
        ["inspect", MATMUL, "--json", *SIZES], ["explain", MATMUL, *SIZES], ["compile", "relu.onnx"],
        ["inspect", "relu.onnx", "--stage", "asm"], ["inspect", "relu.onnx", "--json"], ["explain", "relu.onnx"],
    ],
    ids=lambda c: " ".join(Path(w).name for w in c[:4]),
)  # fmt: skip
def test_commands_for_another_cpu(command: list[str], polyc: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "board.toml").write_text('base = "cortex-a72"\nl2 = 1048576\nl3 = 1048576\nthreads = 4\n')
    for target in ("apple-m1", tmp_path / "board.toml"):
        code, out, err = polyc(*command, "--target", target)
        assert (code, err) == (0, "")
        if "asm" in command:
            assert re.search(r"\bv\d+\.4s", out), "lanes of an Arm CPU"


@pytest.mark.parametrize(
    "command",
    [
        ["run", "relu.onnx", "--check"], ["run", "relu.onnx", "--differential"], ["bench", "relu.onnx", "--against", "",
        "--rounds", "1"], ["tune", MATMUL, *SIZES, "--trials", "1"], ["explain", "relu.onnx", "--measure"],
        ["diff", MATMUL, "schedule.yaml", *SIZES], ["bisect", MATMUL, "trace.json", *SIZES],
    ],
    ids=lambda c: " ".join(Path(w).name for w in c[:3]),
)  # fmt: skip
def test_commands_that_run_code(command: list[str], polyc: Any, model: Path, here: Path, tmp_path: Path) -> None:
    found = auto_schedule(matmul.scop(), "cpu", {"M": 16, "N": 16, "K": 16}, 1)
    (tmp_path / "schedule.yaml").write_text(found.to_yaml())
    (tmp_path / "trace.json").write_text(found.save())
    code, _, err = polyc(*command, "--target", here)
    assert (code, err) == (0, "")


def test_code_for_another_cpu_does_not_run_here(polyc: Any, model: Path) -> None:
    other = "x86-64" if targets.host().isa == "aarch64" else "neoverse-n1"
    for command in (["run", model], ["bench", model, "--against", ""], ["run", model, "--differential"],
                    ["tune", MATMUL, *SIZES]):  # fmt: skip
        code, _, err = polyc(*command, "--target", other)
        assert code in (1, 2) and err.count("\n") == 1 and "cannot run on this machine" in err
    code, _, err = polyc("tune", MATMUL, *SIZES, "--target", "sm_80")
    assert code == 2 and "kernels are tuned by running them on this machine's CPU" in err


def test_a_model_compiled_for_another_cpu_is_compiled_again(polyc: Any, model: Path) -> None:
    other = "znver3" if targets.host().isa == "aarch64" else "neoverse-v2"
    code, out, _ = polyc("compile", model, "-o", "there", "--target", other)
    assert code == 0 and other in out
    code, out, err = polyc("run", "there")
    assert code == 0 and f"the model was compiled for {other}; this machine" in out + err


@pytest.mark.parametrize("command", ["build", "inspect", "explain", "tune", "compile", "run", "bench"])
def test_wrong_names_are_one_line_with_near_misses(command: str, polyc: Any, model: Path) -> None:
    what = model if command in ("compile", "run", "bench") else MATMUL
    code, out, err = polyc(command, what, "--target", "znver33")
    assert code in (1, 2) and not out and err.count("\n") == 1
    assert "unknown target 'znver33' (did you mean znver3, " in err and "a file NAME.toml" in err
    code, _, err = polyc(command, what, "--target", "none.toml")
    assert code in (1, 2) and err == "polyc: cannot read the target file none.toml: No such file or directory\n"


def test_a_gpu_of_ones_own(polyc: Any, model: Path, tmp_path: Path) -> None:
    text = (targets.DATA / "gpu" / "sm_80.toml").read_text().replace("sms = 108", "sms = 3")
    path = tmp_path / "small.toml"
    path.write_text(text)
    assert gpu_targets.get(str(path)).sms == 3 and gpu_targets.get(f"{path}+tf32").features[-1] == "tf32"
    code, out, err = polyc("inspect", MATMUL, "--stage", "cuda", "--target", path)
    assert (code, err) == (0, "") and "__global__" in out
    code, _, err = polyc("compile", model, "--target", path)
    assert (code, err) == (0, "")
    code, _, err = polyc("build", MATMUL, "--target", path)
    assert code == 1 and "for CPUs, and" in err
    path.write_text(text.replace("warp = 32", "warp = -1"))
    code, _, err = polyc("inspect", MATMUL, "--stage", "cuda", "--target", path)
    assert code == 2 and "'warp' is out of its range: -1" in err and err.count("\n") == 1


def test_cpus_have_what_llvm_gives_them(capfd: Any) -> None:
    """LLVM takes every name and every feature without a word; vectors are as wide as its own code's."""
    from polyc.emit.llvm import jit

    vector = "<16 x float>"
    sum_ = f"define {vector} @f({vector} %a, {vector} %b) {{\n %c = fadd {vector} %a, %b\n ret {vector} %c\n}}"
    for name in cpus.names():
        target = targets.get(name)
        text = jit.assembly(f'target triple = "{target.triple}"\n{sum_}', target)
        bits = 512 if "zmm" in text else 256 if "ymm" in text else 128
        assert target.vector_bits <= bits, name
        if target.isa == "aarch64":
            assert (target.vector_bits, target.vector_registers) == (128, 32)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("l1 = 65536", "l1 = 0"), "'l1' is a number from 1024 to"),
        (("l1 = 65536", "l1 = true"), "'l1' must be int"),
        (("l1 = 65536", "l1 = 9999999"), "caches grow: l1 <= l2 <= l3"),
        (("vector_bits = 128", "vector_bits = 96"), "'vector_bits' is a power of two, not 96"),
        (("neoverse-n1", "neoverse-n11"), "LLVM has no aarch64 CPU 'neoverse-n11' .did you mean neoverse-n1"),
        (('features = ""', 'features = "+dotprot"'), "'.dotprot' is none of aarch64 .did you mean .dotprod"),
        (('features = ""', 'features = "dotprod"'), "'features' are like"),
        (('isa = "aarch64"', 'isa = "x86-64"'), "'triple' is of aarch64 and 'isa' is x86-64"),
        (("aarch64-unknown-linux-gnu", "z80-linux"), "'triple' is of z80"),
        (("l1 = 65536", "l1 = "), "is no TOML"),
        (("l1 = 65536", 'base = "znver9"'), "target file x.toml: unknown target 'znver9'"),
        (("l1 = 65536", "base = 3"), "'base' is the name of a target, not 3"),
    ],
)
def test_wrong_files(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text((targets.DATA / "aarch64.toml").read_text().replace(*change))
    with pytest.raises(BuildError, match=message) as caught:
        targets.get(path)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.toml").mkdir()
    for name in ("binary", "folder", "none"):
        for read in (targets.get, gpu_targets.get):
            with pytest.raises(BuildError, match="target file"):
                read(str(tmp_path / f"{name}.toml"))


def test_doctor_lists_them(polyc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyc.graph_driver.cli.doctor import examine

    found = examine()["cpus"]
    assert "znver3" in found["x86-64"] and "apple-m1" in found["aarch64"]
    assert json.dumps(found)
