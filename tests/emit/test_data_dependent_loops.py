"""Affine conditions on the iterator of a data-dependent loop: isl merges them into its bounds and
steps, the run-time bounds come on top."""

from __future__ import annotations

import ctypes
import itertools
import linecache
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from back_ends import difference, interpret, native
from program_tree import HEADER

import polyc
from polyc.emit.loop_ir.printer import to_text
from polyc.emit.lowering.lower import lower
from polyc.emit.targets import host
from polyc.graph_driver.worker.compile_operator import compile_operator

CONDITIONS = (
    "k % 2 == 0", "(k + 1) % 3 == 0", "j < k + 1", "k != j", "2 * k > j + N", "k // 2 == j", "j + k < N",
    "not (k % 2 == 0)", "0 < k < N - 1", "j == k // 3", "k % 2 == j % 2", "j - k > 0 and k % 2 == 1", "2 * k < j",
    "k % 3 == 1 and k > j", "k == 2 or k % 3 == j",
)  # fmt: skip
RANGES = ("range(ptr[i], ptr[i + 1])", "range(ptr[i], N)", "range(ptr[i])")


def operator(condition: str, values: str, outer: str) -> Any:
    loops = ["for j in range(N):", f"for k in {values}:"]
    first, second = loops if outer == "j" else reversed(loops)
    source = f"""{HEADER}
N = dims("N")
def kernel(ptr: i64[N + 1], A: inout(f64[N, N, N])):
    for i in range(N):
        {first}
            {second}
                if {condition}:
                    A[i, j, k] += i + 2 * j + 1
"""
    return compiled(source)


def compiled(source: str) -> Any:
    name = f"<data-dependent {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {}
    exec(compile(source, name, "exec"), scope)
    return polyc.op(scope["kernel"])


@pytest.mark.parametrize("outer", ["j", "k"])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_on_the_iterator_against_python(condition: str, outer: str) -> None:
    rng = np.random.default_rng(len(condition))
    for values in RANGES:
        op = operator(condition, values, outer)
        scop = op.scop()
        for n in (1, 5, 6):
            ptr = np.sort(rng.integers(0, n, n + 1))
            start = rng.integers(0, 9, (n, n, n)).astype(float)
            wanted = start.copy()
            op.python(ptr, wanted)
            assert difference(interpret(scop, scop.tree, [ptr, start]), [wanted]) == ""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["llvm", "c"])
def test_conditions_on_the_iterator_in_machine_code(backend: str) -> None:
    rng = np.random.default_rng(0)
    for condition, values, outer in itertools.product(CONDITIONS, RANGES, "jk"):
        op = operator(condition, values, outer)
        scop = op.scop()
        ptr = np.sort(rng.integers(0, 6, 7))
        start = rng.integers(0, 9, (6, 6, 6)).astype(float)
        wanted = start.copy()
        op.python(ptr, wanted)
        assert difference(native(scop, scop.tree, [ptr, start], backend), [wanted]) == ""


FIXED = (
    "k == 4",
    "k == 4 or k == 1",
    "i == 4",
    "k == 4 and i == 4",
    "i == 2 and k > 0",
    "i == 4 and (k > 2 or k == 1)",
)
AROUND = (
    "if {}:\n                for l in range(cnt[k]):\n                    ",
    "for l in range(cnt[k]):\n                if {}:\n                    ",
)


@pytest.mark.parametrize("condition", FIXED)
@pytest.mark.parametrize("inner", AROUND, ids=["around", "inside"])
def test_bounds_are_read_inside_their_arrays_only(condition: str, inner: str) -> None:
    """isl puts the value of `k == 4` into the subscripts of the bounds; the arrays may end before."""
    source = f"""{HEADER}
N = dims("N")
def kernel(ptr: i64[N + 1], cnt: i64[N], A: inout(f64[N, N, N])):
    for i in range(N):
        for k in range(ptr[i], ptr[i + 1]):
            A[i, k, 0] += 1
            {inner.format(condition)}A[i, k, l] += 2
"""
    op = compiled(source)
    scop = op.scop()
    for n in (1, 3, 5, 6):
        rng = np.random.default_rng(n)
        ptr, cnt = np.sort(rng.integers(0, n, n + 1)), rng.integers(0, n, n)
        start = rng.integers(0, 9, (n, n, n)).astype(float)
        wanted = start.copy()
        op.python(ptr, cnt, wanted)
        assert difference(interpret(scop, scop.tree, [ptr, cnt, start]), [wanted]) == ""


def test_a_step_starts_at_the_first_value_of_its_phase() -> None:
    scop = operator("k % 2 == 1", RANGES[0], "k").scop()
    text = to_text(lower(scop, scop.tree, "kernel", host()))
    assert "for k in range(ptr[i] + (ptr[i] + 1) % 2, ptr[i + 1], 2):" in text


BELOW = {
    "a bound below a condition": """
        if J[i] >= 0:
            for k in range(ptr[J[i]], ptr[J[i] + 1]):
                A[i] += V[k]""",
    "bounds below two conditions": """
        if J[i] >= 0:
            for k in range(ptr[J[i]]):
                if V[k] > 0:
                    for l in range(ptr[k], ptr[k] + 1):
                        A[i] += V[l]""",
    "otherwise": """
        if J[i] < 0:
            A[i] += 1
        else:
            for k in range(2, ptr[J[i]]):
                A[i] += V[k]""",
    "a condition on one value": """
        for k in range(ptr[i], ptr[i + 1]):
            if k == 6 and V[k] > 0:
                A[i] += 1""",
    "a condition in a part of a loop": """
        for k in range(ptr[i], ptr[i + 1]):
            for l in range(ptr[k]):
                if k == 3 and V[k] > 0:
                    A[i] += 1
                if k == 6 and l == 2 and V[k] > 0:
                    A[i] += 2""",
    "bounds that the loop changes": """
        last[i] = ptr[i]
        if J[i] >= 0:
            for k in range(last[J[i]]):
                last[i] += 1
                A[i] += V[k]""",
}  # fmt: skip


@pytest.mark.parametrize("checks", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("body", BELOW.values(), ids=BELOW)
def test_conditions_and_bounds_are_read_as_python_reads_them(body: str, checks: bool) -> None:
    """The first that does not hold ends the reading: what comes after may not exist."""
    op = compiled(f"""{HEADER}
N, M = dims("N M")
def kernel(J: i32[N], ptr: i64[N + 1], V: f64[M], A: inout(f64[N]), last: inout(i64[N])):
    for i in range(N):{body}
""")
    J = np.array([-1, 2, -100, 0, 3], np.int32)
    ptr = np.array([0, 1, 1, 3, 4, 5])
    V = np.array([1.0, -2.0, 3.0, 4.0, 5.0])
    wanted = np.zeros(5)
    op.python(J, ptr, V, wanted, np.zeros(5, np.int64))
    for backend in ("interp", "llvm"):
        A = np.zeros(5)
        compile_operator(op.scop(), backend=backend, threads=1, checks=checks)(J, ptr, V, A, np.zeros(5, np.int64))
        np.testing.assert_array_equal(A, wanted)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_an_end_that_is_a_choice_ends_the_loop_in_c(tmp_path: Path) -> None:
    """`k < (n > 2 ? n : 0)`, not `(k < n > 2) ? n : 0`, which ends where n is 0 only."""
    op = compiled(f"""{HEADER}
N = dims("N")
def kernel(n: i32, A: inout(f64[N])):
    if n > 2:
        for k in range(n):
            A[k] += k
""")
    source, shared = op.build(tmp_path, ["c", "h"])["c"], tmp_path / "kernel.so"
    subprocess.run(["gcc", "-std=c99", "-shared", "-fPIC", "-o", str(shared), str(source), "-lm"], check=True)
    library = ctypes.CDLL(str(shared))
    A = np.zeros(5)
    assert library.kernel(ctypes.c_int32(4), A.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(5)) == 0
    np.testing.assert_array_equal(A, [0, 1, 2, 3, 0])


BRANCHES = (
    "if k % 2 == 0:\n S\nelse:\n T", "if k % 2 == 1:\n S\nelse:\n T", "if k % 3 == 0:\n S\nelif k % 3 == 2:\n T",
    "if k % 2 == 0:\n S\nif k % 2 == 1:\n T", "if (k + i) % 2 == 0:\n S\nelse:\n T",
    "if k % 4 == 3:\n S\nelif k % 4 == 0:\n T\nelse:\n U",
)  # fmt: skip
LOOPS = ("for k in range(ptr[i], ptr[i + 1]):", "for k in range(ptr[i], N):", "for k in range(ptr[i]):")


@pytest.mark.parametrize("inner", ["", "for l in range(2):"])
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("branches", BRANCHES)
def test_branches_that_take_turns_end_where_the_data_say(branches: str, loop: str, inner: str) -> None:
    """isl runs them side by side, `S(k)` with `T(k + 1)` for every second `k`: each has an end of its own."""
    statements = {"S": "A[k] += i + 1", "T": "A[k] = 2 * A[k] + i", "U": "A[k] -= 3"}
    for name, text in statements.items():
        branches = branches.replace(f"\n {name}", f"\n    {text}")
    body = branches if not inner else "\n".join([inner, *(f"    {line}" for line in branches.splitlines())])
    source = "\n".join([
        HEADER, 'N = dims("N")', "def kernel(ptr: i64[N + 1], A: inout(f64[N])):", "    for i in range(N):",
        f"        {loop}", *(f"            {line}" for line in body.splitlines()), "",
    ])  # fmt: skip
    op = compiled(source)
    scop = op.scop()
    rng = np.random.default_rng()
    for n in (5, 6):
        args = [np.sort(rng.integers(0, n + 1, n + 1)), rng.integers(-4, 5, n).astype(float)]
        wanted = [a.copy() for a in args]
        op.python(*wanted)
        assert not difference(interpret(scop, scop.schedule().tree, args), wanted[1:]), args
