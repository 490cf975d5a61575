"""`python -m benchmarks.compile_time KIND [SIZE...]`: seconds that compiling programs of growing length takes.

KIND is `straight` (a chain of scalar assignments in a loop), `top` (the same outside loops), `terms` (independent
scalars that are added up), `mixed` (each scalar is stored, too), `stencils` (1-D stencils one after another),
`graph` (a chain of pointwise ONNX nodes) or `wide` (a graph of them in which every node has two readers). Each size is
compiled from nothing: no cache, one thread; start-up of Python and polyc is not counted. Beside the seconds on the
clock stand those of processors, which say more where other programs run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

HEAD = "from polyc import dims, empty, f32, op\n\nN = dims('N')\n\n\n@op\n"
LENGTH = 1000


def straight(n: int) -> str:
    """A chain of `n` scalars in a loop: each is computed from the one before."""
    chain = [f"s{k} = s{k - 1} * 0.5 + X[i]" if k else "s0 = X[i]" for k in range(n)]
    return _over_rows(chain, "f32[N]", "(N,)", [f"Y[i] = s{n - 1}"])


def top(n: int) -> str:
    """The same outside loops."""
    chain = [f"    s{k} = s{k - 1} * 0.5 + X[0]" if k else "    s0 = X[0]" for k in range(n)]
    lines = [
        "def program(X: f32[N]) -> f32[1]:",
        "    Y = empty((1,), f32)",
        *chain,
        f"    Y[0] = s{n - 1}",
        "    return Y",
    ]
    return HEAD + "\n".join(lines) + "\n"


def terms(n: int) -> str:
    """`n / 2` independent scalars, added up one by one."""
    half = max(1, n // 2)
    own = [f"s{k} = X[i] * {k}.5" for k in range(half)]
    added = ["t = s0", *(f"t = t + s{k}" for k in range(1, half))]
    return _over_rows([*own, *added], "f32[N]", "(N,)", ["Y[i] = t"])


def mixed(n: int) -> str:
    """A chain of `n / 2` scalars, each stored in an array, too."""
    half = max(1, n // 2)
    chain = [f"s{k} = s{k - 1} * 0.5 + X[i]\n        Y[i, {k}] = s{k}" for k in range(1, half)]
    return _over_rows(["s0 = X[i]", *chain], f"f32[N, {half}]", f"(N, {half})", ["Y[i, 0] = s0"])


def stencils(n: int) -> str:
    """`n` stages over one dimension, each with its two edges."""
    lines = [
        "def program(X: f32[N]) -> f32[N]:",
        "    A0 = empty((N,), f32)",
        "    for i in range(N):",
        "        A0[i] = X[i]",
    ]
    for k in range(1, n + 1):
        a, b = f"A{k - 1}", f"A{k}"
        lines += [f"    {b} = empty((N,), f32)", f"    {b}[0] = {a}[0]", f"    {b}[N - 1] = {a}[N - 1]"]
        lines += [
            "    for i in range(1, N - 1):",
            f"        {b}[i] = 0.25 * {a}[i - 1] + 0.5 * {a}[i] + 0.25 * {a}[i + 1]",
        ]
    return HEAD + "\n".join([*lines, f"    return A{n}"]) + "\n"


def _over_rows(body: list[str], result: str, shape: str, last: list[str]) -> str:
    lines = [f"def program(X: f32[N]) -> {result}:", f"    Y = empty({shape}, f32)", "    for i in range(N):"]
    return HEAD + "\n".join([*lines, *(f"        {x}" for x in (*body, *last)), "    return Y"]) + "\n"


PROGRAMS: Mapping[str, Callable[[int], str]] = {
    "straight": straight, "top": top, "terms": terms, "mixed": mixed, "stencils": stencils,
}  # fmt: skip


def program(kind: str, n: int, folder: Path) -> Any:
    """The operator, from a file in `folder`."""
    path = folder / f"{kind}_{n}.py"
    path.write_text(PROGRAMS[kind](n), encoding="utf-8")
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module.program


def graph(kind: str, n: int) -> Any:
    """An ONNX model of `n` pointwise nodes: each reads the node before it (`wide`: and the one before that)."""
    from onnx import TensorProto, helper

    kinds = ("Add", "Mul", "Sub", "Max")
    nodes = []
    for k in range(n):
        first = f"v{k - 1}" if k else "x"
        second = f"v{k - 2}" if kind == "wide" and k > 1 else "x"
        nodes.append(helper.make_node(kinds[k % len(kinds)], [first, second], [f"v{k}"]))
    shape = [1, 64, 32, 32]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", f"v{n - 1}")]
    made = helper.make_graph(nodes, f"{kind}_{n}", ends[:1], ends[1:])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def seconds(kind: str, n: int) -> tuple[float, float]:
    """Compile one program from nothing: by the clock, and of processors (workers included)."""
    import polyc

    with tempfile.TemporaryDirectory() as folder:
        os.environ["POLYC_CACHE"] = str(Path(folder) / "cache")
        if kind in PROGRAMS:
            made = program(kind, n, Path(folder))
            start, spent = time.perf_counter(), sum(os.times()[:4])
            made.compile(N=LENGTH, threads=1)
        else:
            model = graph(kind, n)
            start, spent = time.perf_counter(), sum(os.times()[:4])
            polyc.compile_model(model, threads=1)
        return time.perf_counter() - start, sum(os.times()[:4]) - spent


SIZES = {"straight": (400, 5000), "stencils": (60,), "graph": (1000,), "wide": (1000,)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compile_time", description=__doc__)
    parser.add_argument("kind", choices=[*PROGRAMS, "graph", "wide"])
    parser.add_argument("sizes", nargs="*", type=int, metavar="SIZE")
    given = parser.parse_args()
    seconds(given.kind, 3)  # imports
    for n in given.sizes or SIZES.get(given.kind, (100, 200, 400)):
        clock, processors = seconds(given.kind, n)
        print(f"{given.kind} {n}: {clock:.2f} s ({processors:.2f} s of processors)", flush=True)


if __name__ == "__main__":
    main()
