"""Random programs with indirection, in and out of range: `python tests/bounds_fuzz.py COUNT SEED [--page FILE]`.

Each program runs as plain Python, on LLVM, through the C back end's loops in the interpreter and as a stand-alone C99
file that gcc builds with `-fsanitize=address` (every N-th program; default every one). All agree whether an access was
outside; if none was, results are equal, also without checks, and where checks come first, arrays updated in place are
untouched after a violation. The address sanitiser sees no access outside an array in any case. With `--nested`, loops
may be below conditions, and conditions mix data with values of the loops' variables, which take loops apart.
`--page tests/bounds_results.md` keeps count there, and leaves out seeds that stand there.
"""

from __future__ import annotations

import argparse
import linecache
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from seed_pages import Block, Page, Run, go_through

import polyc
from polyc import BoundsError, DslError
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.binding import bind_sizes

HEADER = "from polyc import dims, empty, f32, i8, i32, i64, inout, op, u32\nN, M, K = dims('N M K')\n"
INDICES = {"I": "i32[M]", "J": "i64[M]", "L": "i8[M]", "U": "u32[M]", "P": "i32[M + 1]"}
PIECE = 50  # programs between two looks of the page
PAGE = Page(
    """# Random programs with indirection that ran

`python tests/bounds_fuzz.py COUNT SEED --page tests/bounds_results.md` (kinds `cpu` and, with `--nested`, `cpu nested`)
and `python tests/gpu/gpu_bounds_fuzz.py` with the same arguments (`gpu` and, with `--opencl`, `gpu opencl`) add to this
page, and leave out seeds that stand here. Plain Python found all accesses of a program `inside` their arrays or one
`outside`, and so did everything else; `refused`: by the front end; `sanitised`: also built as C with the address
sanitiser. On GPUs two schedules of each program count; `unmapped`: one has no code there; `lost`: it has, without
checks. Seconds are the processor's.
""",
    of="programs", counts=("inside", "outside", "refused", "unmapped", "lost", "sanitised"), kinds=True,
)  # fmt: skip
TYPES = {"I": np.int32, "J": np.int64, "L": np.int8, "U": np.uint32, "P": np.int32}


class Writer:
    """One random program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def index(self, variables: list[str], depth: int = 2) -> str:
        """A subscript of any value."""
        r = self.r
        v = r.choice(variables) if variables else "0"
        if depth == 0:
            return v
        inner = self.index(variables, depth - 1)
        return r.choice([
            v, f"{r.choice('IJLU')}[{inner}]", f"{r.choice('IJL')}[{inner}]", f"I[{inner}] + {r.randint(-1, 1)}",
            f"{v} * {v}", f"I[{v}] * {r.choice([2, 3, 100000])}", f"{r.choice('nm')}", f"J[{inner}] // 2",
            f"min(I[{v}], {r.choice(['N', 'M'])} - 1)", f"I[{v}] % 3", f"{v} + n",
        ])  # fmt: skip

    def value(self, variables: list[str]) -> str:
        r = self.r
        i = self.index(variables)
        v = r.choice(variables) if variables else "0"
        return r.choice([
            f"X[{i}]", f"X[{i}] * 2.0", f"X[{i}] + X[{self.index(variables)}]", f"Z[{i}, {self.index(variables, 1)}]",
            f"(X[{i}] if {i} >= 0 else 0.5)", f"(X[I[{v}]] if I[{v}] >= 0 and I[{v}] < N else 0.5)", "1.0",
        ])  # fmt: skip

    def body(self, level: int, variables: list[str], budget: int) -> None:
        r, pad = self.r, "    " * level
        for _ in range(r.randint(1, 2)):
            kind = r.choice(["store", "update", "update", "guard", "loop", "loop", "local"] if budget else ["update"])
            if kind == "loop" or not variables:
                self.loop(level, variables, budget)
            elif kind == "guard":
                self.guard(level, variables, budget)
            elif kind == "local":
                name = self.fresh()
                self.lines.append(f"{pad}{name} = {self.index(variables)}")
                self.lines.append(f"{pad}Y[{name}] += {self.value([*variables, name])}")
            else:
                sign = "+=" if kind == "update" else "="
                self.lines.append(f"{pad}Y[{self.index(variables)}] {sign} {self.value(variables)}")

    def guard(self, level: int, variables: list[str], budget: int) -> None:
        v = self.r.choice(variables)
        test = self.r.choice([
            f"I[{v}] >= 0", f"I[{v}] >= 0 and I[{v}] < N", f"X[I[{v}]] > 0.5", f"{v} < n", f"J[{v}] != 0",
        ])  # fmt: skip
        self.lines.append(f"{'    ' * level}if {test}:")
        self.body(level + 1, variables, 0)

    def loop(self, level: int, variables: list[str], budget: int) -> None:
        r, v = self.r, self.fresh()
        bounds = ["M", "M", "n", "m, n", "N"]
        if variables:
            outer = r.choice(variables)
            bounds += [f"P[{outer}], P[{outer} + 1]", f"P[{outer}], P[{outer} + 1]", f"I[{outer}]"]
        self.lines.append(f"{'    ' * level}for {v} in range({r.choice(bounds)}):")
        self.body(level + 1, [*variables, v], budget - 1)

    def source(self) -> str:
        head = ", ".join(f"{n}: {t}" for n, t in INDICES.items())
        self.lines = [
            "@op", f"def program(X: f32[N], Z: f32[N, K], Y: inout(f32[N]), {head}, n: i32, m: i32):",
        ]  # fmt: skip
        variables: list[str] = []
        if self.r.random() < 0.3:  # positions that the program computes
            self.lines += ["    at = empty(M, i32)", "    at[0] = I[0]", "    for c in range(1, M):",
                           "        at[c] = at[c - 1] + I[c] % 2", "    for d in range(M):",
                           "        Y[at[d]] += X[at[d]]"]  # fmt: skip
        for _ in range(self.r.randint(1, 2)):
            self.loop(1, variables, 2)
        return HEADER + "\n".join(self.lines) + "\n"


class Nested(Writer):
    """Programs with loops below conditions, and with conditions that take loops apart."""

    def guard(self, level: int, variables: list[str], budget: int) -> None:
        r, v, u = self.r, self.r.choice(variables), self.r.choice(variables)
        test = r.choice([
            f"I[{v}] >= 0", f"I[{v}] >= 0 and I[{v}] < M", f"J[{v}] > {r.randint(0, 2)}", f"{v} < n",
            f"{v} == {r.randint(0, 9)}", f"{v} == {r.randint(0, 9)} and X[{v}] > 0.3", f"X[{v}] > 0.3 and {u} < M - 1",
            f"{v} > {r.randint(0, 3)} and I[{u}] != {v}", f"{v} == {u}", f"{v} == {u} + 1 and X[{v}] > 0.2",
        ])  # fmt: skip
        self.lines.append(f"{'    ' * level}if {test}:")
        outer = r.choice(variables)
        if budget and r.random() < 0.6:
            self.loop(level + 1, variables, budget)
        elif r.random() < 0.3:
            name = self.fresh()
            bounds = r.choice([f"P[{outer}], P[{outer}] + 2", f"I[{outer}]", f"P[I[{outer}]]", f"L[J[{outer}]]"])
            self.lines.append(f"{'    ' * (level + 1)}for {name} in range({bounds}):")
            self.body(level + 2, [*variables, name], 0)
        else:
            self.body(level + 1, variables, 0)


def arguments_for(seed: int) -> dict[str, Any]:
    """Arrays whose index values are mostly inside, sometimes by much outside."""
    rng = np.random.default_rng(seed)
    n, m, k = (int(x) for x in rng.integers(2, 9, 3))
    wild = rng.random() < 0.5

    def indices(count: int, dtype: Any, top: int) -> np.ndarray:
        values = rng.integers(0, max(1, top), count)
        if wild:
            where = rng.random(count) < 0.15
            values = np.where(where, rng.choice([-1, -3, n, n + 2, m, 100, -128, 127], count), values)
        return values.astype(dtype)

    low = min(n, m, k)
    given: dict[str, Any] = {
        "X": rng.random(n, np.float32), "Z": rng.random((n, k), np.float32), "Y": rng.random(n, np.float32),
    }  # fmt: skip
    given |= {name: indices(m, TYPES[name], low) for name in "IJLU"}
    given["P"] = np.sort(indices(m + 1, np.int32, low)) if rng.random() < 0.8 else indices(m + 1, np.int32, low)
    given["n"] = int(rng.integers(0, low + 1)) if not wild else int(rng.integers(-2, low + 4))
    given["m"] = int(rng.integers(0, 2)) if not wild else int(rng.integers(-2, 3))
    return given


def made(source: str, name: str) -> Any:
    """The operator `program` of a source, with lines that errors can show."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": name}
    exec(compile(source, name, "exec"), space)
    return space["program"]


def outcome(run: Any, given: dict[str, Any]) -> tuple[BoundsError | None, np.ndarray]:
    """The violation, or None, and what is in Y afterwards; the arguments stay as they are."""
    own = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in given.items()}
    try:
        with np.errstate(all="ignore"):
            run(**own)
    except BoundsError as error:
        return error, own["Y"]
    return None, own["Y"]


def literal(a: np.ndarray) -> str:
    """The elements as the text of a C initialiser: floats exactly, never empty."""
    return ", ".join(float(x).hex() + "f" if a.dtype.kind == "f" else str(int(x)) for x in a.reshape(-1)) or "0"


def sanitised(operator: Any, scop: Any, given: dict[str, Any], folder: Path, checks: bool) -> tuple[int, np.ndarray]:
    """Status (0 without `checks`) and result of the C99 file, each array in memory of its own. Raises `AssertionError`
    with what gcc or the address sanitiser has to say."""
    source = next(p for k, p in operator.build(folder, ["c", "h"], checks=checks).items() if k == "c")
    values = bind_sizes(scop, {n: np.shape(given[n]) for n in scop.args})
    types = {"f": "float", "i": "int{}_t", "u": "uint{}_t"}
    lines = ['#include "program.h"', "#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>",
             "int main(void) {", "  int status;", "  long k;"]  # fmt: skip
    call = []
    for name in scop.args:
        a = given[name]
        if not isinstance(a, np.ndarray):
            call.append(str(a))
            continue
        t = types[a.dtype.kind].format(8 * a.itemsize)
        lines.append(f"  static const {t} {name}_data[] = {{{literal(a)}}};")
        lines.append(f"  {t} *{name} = malloc({max(a.nbytes, 1)});")
        lines.append(f"  memcpy({name}, {name}_data, {a.nbytes});")
        call.append(name)
    call += [str(values[p]) for p in scop.params]
    y = given["Y"]
    lines += [f"  status = program({', '.join(call)});", '  printf("%d\\n", status);',
              f'  for (k = 0; k < {y.size}; k++) printf("%a\\n", (double)Y[k]);']  # fmt: skip
    lines += [f"  free({n});" for n in scop.args if isinstance(given[n], np.ndarray)] + ["  return 0;", "}"]
    (folder / "main.c").write_text("\n".join(lines) + "\n")
    built = folder / "sanitised"
    command = ["gcc", "-std=c99", "-O1", "-w", "-fsanitize=address", "-fno-omit-frame-pointer", "-o", str(built),
               str(folder / "main.c"), str(source), "-lm"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    ran = subprocess.run([str(built)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr[:3000]
    status, *rest = ran.stdout.split()
    return int(status), np.array([float.fromhex(x) for x in rest], np.float32)


def check(seed: int, sanitise: bool, writer: type[Writer] = Writer) -> Counter[str]:
    """Run one program every way: was it `inside`, `outside`, or `refused` by the front end, and was it `sanitised`?

    Raises `AssertionError` where one way differs from plain Python.
    """
    source = writer(seed).source()
    given = arguments_for(seed)
    operator = made(source, f"<bounds {seed}>")
    try:
        scop = operator.scop()
    except DslError:
        return Counter(refused=1)
    expected, result = outcome(operator.python, given)
    ways = {"llvm": compile_operator(scop, threads=1), "interp": compile_operator(scop, backend="interp", threads=1)}
    if expected is None:
        ways["unchecked"] = compile_operator(scop, backend="interp", threads=1, checks=False)
    for way, kernel in ways.items():
        error, got = outcome(kernel, given)
        assert (error is None) == (expected is None), (
            f"seed {seed}, {way}: {error!r}, plain Python: {expected!r}\n{source}"
        )
        if expected is None:
            np.testing.assert_allclose(got, result, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}, {way}\n{source}")
        else:
            assert error is not None and not 0 <= error.index < error.size, f"seed {seed}, {way}: {error}"
            if all(c.how == "before" for c in kernel.function.checks):
                np.testing.assert_array_equal(got, given["Y"], err_msg=f"seed {seed}, {way}: half written\n{source}")
    for checks in (True, False) if sanitise else ():
        if not checks and expected is not None:
            continue
        with tempfile.TemporaryDirectory(prefix="polyc-bounds-") as folder:
            try:
                status, got = sanitised(operator, scop, given, Path(folder), checks)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, checks={checks}: {error}\n{source}") from None
        assert (status == 2) == (expected is not None), (
            f"seed {seed}: C returns {status}, Python {expected!r}\n{source}"
        )
        if expected is None:
            np.testing.assert_allclose(got, result, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}, C\n{source}")
    return Counter({"inside" if expected is None else "outside": 1, "sanitised": int(sanitise)})


def run_piece(piece: Run, checks: Callable[[int], Counter[str]]) -> tuple[Block, list[str]]:
    """Seeds one after another: their row, and a line for each failure, which is printed whole."""
    total: Counter[str] = Counter()
    failures = []
    for seed in piece.seeds:
        try:
            total += checks(seed)
        except (AssertionError, polyc.PolycError, subprocess.SubprocessError) as error:
            print(f"{piece.kind} {seed}: {type(error).__name__}: {error}", flush=True)
            failures.append(f"- {piece.kind} {seed}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    return piece.block((total[name] for name in PAGE.counts), len(failures)), failures


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The arguments that `campaign` reads."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--page", type=Path, help="where to keep count")
    return parser


def campaign(given: argparse.Namespace, kind: str, checks: Callable[[int], Counter[str]]) -> int:
    """Run the seeds that were asked for; the exit code."""
    seeds = range(given.seed, given.seed + given.count)
    return 1 if go_through(PAGE, given.page, seeds, PIECE, partial(run_piece, checks=checks), kind) else 0


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--every", type=int, default=1, help="build every N-th program with the address sanitiser")
    parser.add_argument("--nested", action="store_true", help="loops below conditions")
    given = parser.parse_args()
    gcc = shutil.which("gcc") is not None
    if not gcc:
        print("gcc is missing: no program is built with the address sanitiser", file=sys.stderr)

    def checks(seed: int) -> Counter[str]:
        return check(seed, gcc and seed % given.every == 0, Nested if given.nested else Writer)

    return campaign(given, "cpu nested" if given.nested else "cpu", checks)


if __name__ == "__main__":
    sys.exit(main())
