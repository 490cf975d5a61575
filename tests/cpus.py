"""CPUs by LLVM's names and what they can do: `python -m tests.cpus --clang clang-22` writes the table of `emit.cpus`.

clang is asked, because llvmlite tells neither names nor features; it should be of llvmlite's version of LLVM. CPUs
that run no 64-bit code are left out, and so are features that no code uses which LLVM makes of ordinary IR.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "emit" / "target_data" / "cpus.json"
TRIPLES = {"aarch64": "aarch64-unknown-linux-gnu", "x86-64": "x86_64-unknown-linux-gnu"}
USED = {
    "aarch64": r"neon|fp-armv8|fullfp16|fp16fml|bf16|dotprod|i8mm|sve\w*|lse\w*|rdm|sha3|complxnum|cssc|mops|"
    r"faminmax|flagm",
    "x86-64": r"s?sse.*|avx.*|fma4?|xop|tbm|bmi2?|lzcnt|popcnt|movbe|f16c|cmov|cx16|gfni|v?pclmul\w*|adx|egpr|ndd|ccmp|"
    r"nf|zu|ppx|push2pop2|amx-(tile|int8|bf16)",
}


def names(clang: str, isa: str) -> list[str]:
    """The CPUs of one architecture that clang has."""
    said = _run([clang, f"--target={TRIPLES[isa]}", "--print-supported-cpus"])
    return [m[1] for line in said.splitlines() if (m := re.fullmatch(r"\t([\w.+-]+)", line)) and m[1] != "generic"]


def features(clang: str, isa: str, cpu: str) -> list[str] | None:
    """What the CPU can do, in LLVM's words (`avx2`, `fma`); None where it runs no 64-bit code."""
    option = f"-m{'arch' if isa == 'x86-64' else 'cpu'}={cpu}"
    said = _run([clang, f"--target={TRIPLES[isa]}", option, "-S", "-emit-llvm", "-x", "c", "-", "-o", "-"],
                "void f(void) {}")  # fmt: skip
    found = re.search(r'"target-features"="([^"]*)"', said)
    if found is None:
        return None
    return sorted(f[1:] for f in found[1].split(",") if f.startswith("+") and re.fullmatch(USED[isa], f[1:]))


def _run(command: Sequence[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode == 0 else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clang", default="clang")
    clang = parser.parse_args().clang
    table = {}
    for isa in TRIPLES:
        made = {cpu: features(clang, isa, cpu) for cpu in names(clang, isa)}
        table[isa] = {cpu: ",".join(found) for cpu, found in sorted(made.items()) if found is not None}
        print(f"{isa}: {len(table[isa])} CPUs")
    FILE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
