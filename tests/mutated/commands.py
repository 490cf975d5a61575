"""Command lines: right ones, over a few small files, and ways to get them wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

LINES = """
run m.onnx --threads 1
run m.onnx --dim N=3 --threads 1 --seed 4
run m.onnx --dim N=any --threads 1
run m.onnx --dim N=1..8 --threads 1 --json
run m.onnx --input x=x.npy --save out.npz --threads 1
run m.onnx --check --tolerance 1e-3 --threads 1
run net.onnx --mode eager --tensor r1 --threads 1
run net.onnx --mode mixed --eager conv* --threads 1
run net.onnx --poison --threads 1
run net.onnx --profile p.json --threads 2 --tasks
run m.onnx --differential --threads 1 --dim N=2
run net.onnx --disable winograd,cleanup --select naive --threads 1
run net.onnx --precision bf16 --keep-f32 Gemm --threads 1
run net.onnx --layouts rows --planner greedy --threads 1
run m.onnx --strict-annotations --contiguous h,y --threads 1
run p --mode graph
run p --mode eager --tensor h
run p --check --reference m.onnx
compile m.onnx -o out --threads 1 --memory-limit 100000
compile net.onnx -o out --exact --threads 1 --keep-op-borders
compile m.onnx --target c -o out --dim N=3
compile m.onnx --target sm_80 -o out --dim N=3
compile m.onnx --bind x=1,2 -o out --threads 1
inspect ops.py:matmul --stage schedule --dim M=64 --dim N=32 --dim K=16
inspect ops.py:matmul --stage schedule --yaml
inspect ops.py:matmul --stage deps
inspect ops.py:chain --stage loops --schedule s.yaml
inspect ops.py:chain --stage c --threads 2
inspect ops.py:chain --stage asm --target x86-64-v3
inspect ops.py:matmul --stage cuda --target sm_80
inspect ops.py:chain --json --dim M=8 --dim N=8
inspect ops.py:chain --html page.html --dim M=8 --dim N=8
inspect m.onnx --stage graph --dim N=3
inspect m.onnx --stage plan --dim N=3 --json
inspect m.onnx --stage loops --kernel 0 --dim N=3
inspect net.onnx --html page.html
inspect p --stage plan
build ops.py:matmul -o b --emit c,h --size M=8 --name f
build ops.py:chain -o b --emit ll,asm,so --target x86-64-v3 --json
build ops.py:chain -o b --emit c --target c99 --schedule s.yaml
explain ops.py:chain --dim M=8
explain net.onnx --verbose --threads 1
diff ops.py:chain s.yaml
diff ops.py:chain s.yaml t.jsonl
bisect ops.py:chain t.jsonl
bench m.onnx --rounds 1 --against '' --threads 1 --dim N=3
tune ops.py:chain --trials 1 --limit 20 --dim M=8 --dim N=8 --threads 1
passes --json
doctor
doctor --json
""".strip().split("\n")

WORDS = (
    "", "-", "--", "-1", "0", "1.5", "nan", "inf", "1e400", "99999999999999999999", "0x3", "\u0663", "\u00b2",
    "N=", "=3",
    "N==3",     "N=1..", "N=5..2", "N=..", "N=0", "N=-1", "N=0..0", "x=x", "x=x.npy", "x=m.onnx", "*", "[", "%s",
    "{}", "a" * 3000,
    "\x1b[31mred", "two\nlines", "\u2028", "ü", "\udcff", "..", ".", "p", "m.onnx", "net.onnx", "s.yaml", "t.jsonl",
    "x.npy", "ops.py", "ops.py:", "ops.py:nothing", "ops.py:chain", "ops.py:matmul:x", ".py:f", "nowhere/x.onnx",
    "/dev/null", "/dev/zero", "/dev/full", "/nonexistent/x", "m.onnx/x", "cpu", "c", "c99", "cuda", "opencl", "sm_80",
    "sm_80+tf32", "sm_80+x", "x86-64", "aarch64", "no,such", "Add,,Mul", ",", "h,h", "help", "--help", "--json",
    "--threads", "--dim", "--target", "--stage", "--schedule", "--input", "--mode", "--passes", "--check",
    "--measure",
)  # fmt: skip

COSTLY = ("--trials", "--rounds", "--limit")
"""What follows these is how long to work: it is not made larger."""

Edit = Callable[[list[str], random.Random], list[str]]


def left_out(argv: list[str], rng: random.Random) -> list[str]:
    """One word less."""
    k = rng.randrange(len(argv))
    return argv[:k] + argv[k + 1 :]


def put_in(argv: list[str], rng: random.Random) -> list[str]:
    """One word more."""
    k = rng.randrange(1, len(argv) + 1)
    return [*argv[:k], rng.choice(WORDS), *argv[k:]]


def replaced(argv: list[str], rng: random.Random) -> list[str]:
    """Another word, seldom another command."""
    k = rng.randrange(1 if len(argv) > 1 and rng.random() < 0.9 else 0, len(argv))
    return [*argv[:k], rng.choice(WORDS), *argv[k + 1 :]]


def value_replaced(argv: list[str], rng: random.Random) -> list[str]:
    """What stands behind an option, or in NAME=V behind the sign."""
    places = [k for k in range(1, len(argv)) if not argv[k].startswith("--")] or [0]
    k = rng.choice(places)
    name, equals, _ = argv[k].partition("=")
    return [*argv[:k], name + equals + rng.choice(WORDS) if equals else rng.choice(WORDS), *argv[k + 1 :]]


def swapped(argv: list[str], rng: random.Random) -> list[str]:
    """Two words change places."""
    out = list(argv)
    i, j = rng.randrange(len(out)), rng.randrange(len(out))
    out[i], out[j] = out[j], out[i]
    return out


def repeated(argv: list[str], rng: random.Random) -> list[str]:
    """A word or two, twice."""
    k = rng.randrange(len(argv))
    return [*argv[: k + 1], *argv[max(0, k - 1) :]]


def mixed(argv: list[str], rng: random.Random) -> list[str]:
    """Options of another command."""
    other = rng.choice(LINES).split()
    options = [k for k, a in enumerate(other) if a.startswith("--")]
    if not options:
        return [*argv, "--json"]
    k = rng.choice(options)
    return [*argv, *other[k : k + 2]]


def characters(argv: list[str], rng: random.Random) -> list[str]:
    """A character of one word goes, is another, or is put in."""
    out = list(argv)
    k = rng.randrange(len(out))
    at = rng.randrange(len(out[k]) + 1)
    out[k] = out[k][:at] + rng.choice(("", "x", "-", "=", ",", "0", "é", "\n")) + out[k][at + rng.randrange(2) :]
    return out


EDITS: tuple[Edit, ...] = (
    left_out,
    put_in,
    replaced,
    value_replaced,
    value_replaced,
    swapped,
    repeated,
    mixed,
    characters,
)


def mutated(rng: random.Random) -> tuple[str, list[str]]:
    """The kind of damage and the command line."""
    argv = [a.strip("'") for a in rng.choice(LINES).split()]
    edit = rng.choice(EDITS)
    out = argv
    for _ in range(rng.choice((1, 1, 1, 2))):
        out = edit(out, rng) if out else out
    return edit.__name__, argv if _costly(argv, out) else out


def _costly(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether a command that measures would be told to do so for longer, or is called without a limit."""
    if not {"bench", "tune", "doctor"} & set(after):
        return False
    known = {(a, b) for a, b in zip(before, before[1:]) if a in COSTLY}
    return {(a, b) for a, b in zip(after, after[1:]) if a in COSTLY} != known or "--measure" in after
