"""Targets as data: this machine, the shipped files, and code that follows the vector width."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hand_ir
import pytest

from polyc.emit import targets
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import to_llvm
from polyc.poly.errors import BuildError


def test_this_machine_is_described() -> None:
    host = targets.host()
    assert host == targets.get() == targets.get("cpu") == targets.get("host")
    assert host.vector_bits in (128, 256, 512) and host.vector_registers in (16, 32)
    assert 8 << 10 <= host.l1 <= host.l2 <= max(host.l2, host.l3) and host.threads >= 1
    assert host.lanes(32) == host.vector_bits // 32
    assert targets.obstacle(host) is None


@pytest.mark.parametrize("name", targets.names())
def test_every_target_makes_machine_code(name: str) -> None:
    target = targets.get(name)
    image = jit.build_object(to_llvm(hand_ir.saxpy(target.lanes(32)), target), target)
    assert image[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")


@pytest.mark.parametrize(
    ("name", "instruction", "register"),
    [("x86-64-v3", "vfmadd", "ymm"), ("x86-64-v4", "vfmadd", "zmm"), ("aarch64", "fmla", "v0.4s")],
)
def test_vectors_are_as_wide_as_the_target(name: str, instruction: str, register: str) -> None:
    target = targets.get(name)
    text = jit.assembly(to_llvm(hand_ir.saxpy(target.lanes(32)), target), target)
    assert any(instruction in line and register in line.replace("v1.4s", "v0.4s") for line in text.splitlines())


def test_a_new_target_is_one_file(tmp_path: Path) -> None:
    data = (targets.DATA / "aarch64.toml").read_text()
    path = tmp_path / "phone.toml"
    path.write_text(data.replace("neoverse-n1", "cortex-a55"))
    target = targets.from_toml(path)
    assert target.name == "phone" and target.cpu == "cortex-a55"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("l1 = 65536\n", ""), "'l1' is missing or unknown"),
        (lambda t: t + "l4 = 5\n", "'l4' is missing or unknown"),
        (lambda t: t.replace("l1 = 65536", 'l1 = "big"'), "'l1' must be int"),
    ],
)
def test_wrong_files_are_one_clear_line(tmp_path: Path, change: object, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(change((targets.DATA / "aarch64.toml").read_text()))
    with pytest.raises(BuildError, match=message):
        targets.from_toml(path)


def test_unknown_names_and_triples() -> None:
    with pytest.raises(BuildError, match="unknown target 'z80'; known: cpu, generic, aarch64"):
        targets.get("z80")
    with pytest.raises(BuildError, match="LLVM has no target 'z80-none'"):
        jit.build_object("", replace(targets.host(), triple="z80-none"))


def test_obstacles_name_what_is_missing() -> None:
    host = targets.host()
    wide = replace(host, name="wide", vector_bits=4096)
    assert "needs 4096-bit vectors" in str(targets.obstacle(wide))
    odd = replace(host, name="odd", features="+sse2,+quantum")
    assert "'quantum'" in str(targets.obstacle(replace(odd, features="+quantum")))
    with pytest.raises(BuildError, match="which this machine lacks"):
        targets.check_runs_here(replace(odd, features="+quantum"))


def test_this_machine_as_another_one() -> None:
    if targets.host().isa != "x86-64":
        pytest.skip("names of x86-64")
    text = "from polyc.emit import targets; t = targets.host(); print(t.cpu, t.vector_bits, targets.obstacle(t))"

    def run(cpu: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "POLYC_HOST": cpu}
        return subprocess.run(
            [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
        )

    assert run("nehalem").stdout == "nehalem 128 None\n"
    assert (
        "POLYC_HOST is 'nehallem', which is no x86-64 CPU that LLVM knows (did you mean neh" in run("nehallem").stderr
    )


@pytest.mark.parametrize("number", ["1" * 5000, "-" + "9" * 5000])
def test_numbers_of_thousands_of_digits(tmp_path: Path, number: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text((targets.DATA / "aarch64.toml").read_text().replace("l1 = 65536", f"l1 = {number}"))
    with pytest.raises(BuildError, match="is no TOML"):
        targets.from_toml(path)


def test_caches_are_what_the_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """48 KiB in 12 ways have 64 sets; with 8 ways, as most, addresses that share a set would not be known."""
    for name, kind, level, size, ways in (("0", "Data", 1, "48K", 12), ("1", "Instruction", 1, "32K", 8)):
        index = tmp_path / f"index{name}"
        index.mkdir()
        for file, text in {"type": kind, "level": level, "size": size, "ways_of_associativity": ways}.items():
            (index / file).write_text(f"{text}\n")
    host = targets.host.__wrapped__  # not the one that is known already
    monkeypatch.setattr(targets, "CACHES", tmp_path)
    assert (host().l1, host().l1_ways) == (48 << 10, 12)
    (tmp_path / "index0" / "ways_of_associativity").write_text("0\n")  # what virtual machines may say
    assert host().l1_ways == 8
