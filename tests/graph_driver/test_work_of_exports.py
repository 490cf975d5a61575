"""How much exported C does at most, as its header says, against counters put into its loops."""

from __future__ import annotations

import ctypes
import operator
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import islpy as isl
import numpy as np
import pytest
from parts import in_part
from tiny_models import network

from examples import polybench
from polyc import dims, empty, exp, f32, grid, i32, inout, op, zeros
from polyc.emit import targets
from polyc.emit.c import cc
from polyc.emit.loop_ir.loops import For, If, Let, Stmt, walk
from polyc.emit.loop_ir.work import context_of, operations_of, work_of
from polyc.emit.lowering.lower import lower
from polyc.emit.standalone import Standalone
from polyc.graph_driver.artifacts.c_export import export_c
from polyc.graph_driver.artifacts.operator_files import code_of
from polyc.graph_driver.options import CompileOptions
from polyc.poly.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from polyc.poly.rewriting.specialise import specialise
from polyc.poly.scop import Scop

pytestmark = pytest.mark.skipif(cc.find_compiler() is None, reason="no C compiler")
LOOP = re.compile(r"(for \(int64_t [^\n]*\)\s*\{)")
M, N, K = dims("M N K")


@op
def matmul(A: f32[M, K], B: f32[K, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    return C


@op
def normalised(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        s = 0.0
        for j in range(N):
            Y[i, j] = exp(X[i, j])
            s += Y[i, j]
        for j in range(N):
            Y[i, j] = Y[i, j] / s
    return Y


@op
def lu(A: inout(f32[N, N])):
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] /= A[k, k]
        for i, j in grid((k + 1, N), (k + 1, N)):
            A[i, j] -= A[i, k] * A[k, j]


def counted(source: str) -> str:
    """C in which every iteration of a loop is counted; helpers of one vector operation have loops over `int` lanes."""
    text, loops = LOOP.subn(r"\1 polyc_seen++;", source)
    assert loops == len(re.findall(r"\bfor \(int64_t", source)), "a loop of another form"
    return text


def built(folder: Path, *flags: str) -> ctypes.CDLL:
    """All C of a folder as a library."""
    out = folder / "counted.so"
    files = [str(p) for p in folder.glob("*.c") if p.name != "main.c"]
    command = [str(cc.find_compiler()), "-O1", "-w", "-fPIC", "-shared", *flags, *files, "-o", str(out), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(out))


EXPORTED = {
    "matmul": (matmul, {"M": 7, "N": 37, "K": 9}), "round-matmul": (matmul, {"M": 10, "N": 64, "K": 5}),
    "normalised": (normalised, {"M": 3, "N": 41}), "lu": (lu, {"N": 19}), "large-lu": (lu, {"N": 130}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "plain"),  # (formulas of `lu` take seconds)
    in_part([(n, p) for n in EXPORTED for p in (False, True)], lambda n, p: "lu" not in n),
)
def test_operators(tmp_path: Path, name: str, plain: bool) -> None:
    exported, sizes = EXPORTED[name]
    scop = exported.scop()
    code = code_of(scop)
    version = code.plain if plain or code.vectors is None else code.vectors
    formula = work_of(version.fn, context_of(scop)).iterations
    assert formula is not None and all(line in code.header() for line in formula.lines())
    assert formula.exact and ran(scop, code, sizes, tmp_path, plain) == formula(sizes) > 0


def ran(
    scop: Scop, code: Standalone, sizes: dict[str, int], folder: Path, plain: bool,
    given: Mapping[str, np.ndarray] | None = None,
) -> int:  # fmt: skip
    """The iterations of a run on arrays of ones, or those that are `given` by name."""
    (folder / "op.c").write_text("long polyc_seen = 0;\n" + counted(code.c()))
    library = built(folder, *(["-DPOLYC_PLAIN_C"] if plain else []))
    shapes = {n: [_at(e, sizes) for e in scop.arrays[n].shape] for n in (*scop.args, *scop.results)}
    arrays = [(given or {}).get(n, np.ones(shape)) for n, shape in shapes.items()]
    arguments = [a.ctypes.data_as(ctypes.c_void_p) for a in arrays]
    numbers = [ctypes.c_int64(sizes[p]) for p, _ in code.interface.sizes]
    assert getattr(library, code.interface.name)(*arguments, *numbers) == 0
    return ctypes.c_long.in_dll(library, "polyc_seen").value


@pytest.mark.parametrize("plain", [False, True], ids=["vectors", "plain"])
@pytest.mark.parametrize("name", ["lu", "cholesky", "ludcmp", "trisolv", "durbin", "gramschmidt", "nussinov"])
def test_what_is_no_box_is_counted_exactly(tmp_path: Path, name: str, plain: bool) -> None:
    """Triangles, rests of tiles and their conditions, for given sizes."""
    kernel = polybench.load(name)
    sizes = {n: size // 2 - 3 for n, size in kernel.sizes["SMALL"].items()}
    scop = specialise(kernel.operator.scop(), sizes)
    code = code_of(scop)
    version = code.plain if plain or code.vectors is None else code.vectors
    formula = work_of(version.fn, context_of(scop)).iterations
    assert formula is not None and formula.exact
    assert formula() == ran(scop, code, sizes, tmp_path, plain)


OPERATIONS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "min": min,
    "max": max, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne, "and": operator.and_, "or": operator.or_,
}  # fmt: skip


def number(e: Expr, known: Mapping[str, int]) -> int:
    """An expression of loops and sizes."""
    match e:
        case Const():
            return int(e.value)
        case Var():
            return known[e.name]
        case Cast():
            return number(e.a, known)
        case Unary(op="neg"):
            return -number(e.a, known)
        case Select():
            return number(e.a if number(e.cond, known) else e.b, known)
        case Binary():
            return int(OPERATIONS[e.op](number(e.a, known), number(e.b, known)))
    raise NotImplementedError(str(e))


def walked(s: Stmt, known: Mapping[str, int]) -> int:
    """The iterations of the loops of a statement, one by one."""
    if isinstance(s, For):
        values = range(number(s.lo, known), number(s.hi, known), s.step)
        inner = any(isinstance(x, For) for x in walk(s.body))
        return len(values) + (sum(walked(s.body, {**known, s.var: v}) for v in values) if inner else 0)
    if not any(isinstance(x, For) for x in walk(s)):
        return 0
    if isinstance(s, If):
        side = s.then if number(s.cond, known) else s.orelse
        return 0 if side is None else walked(side, known)
    if isinstance(s, Let) and s.value.dtype.is_int and s.value.lanes == 1:
        known = {**known, s.name: number(s.value, known)}
    return sum(walked(b, known) for b in s.bodies())


@pytest.mark.parametrize(
    "name",
    ["gramschmidt", *(pytest.param(n, marks=pytest.mark.long) for n in ("nussinov", "cholesky", "syrk", "symm", "lu"))],
)
def test_nests_of_any_size_are_counted_exactly(name: str) -> None:
    """Tiles over diagonals and rests of two tiles in one nest, whose closed form is too hard, are sums over loops."""
    scop = polybench.load(name).operator.scop()
    code = code_of(scop)
    for version in (v for v in (code.vectors, code.plain) if v is not None):
        formula = work_of(version.fn, context_of(scop)).iterations
        assert formula is not None and formula.exact
        for n in (2, 7, 19, 40):
            sizes = {p: n + 3 * k for k, p in enumerate(scop.params)}
            if not fits(scop, sizes):
                continue
            assert formula(sizes) == walked(version.fn.body, sizes), (name, sizes)


def fits(scop: Scop, sizes: dict[str, int]) -> bool:
    """Whether a Scop is for these sizes."""
    where = context_of(scop)
    for p, n in sizes.items():
        where = where.fix_val(isl.dim_type.param, where.find_dim_by_name(isl.dim_type.param, p), isl.Val(n))
    return not where.is_empty()


@op
def triangles(A: f32[N, N], B: f32[N, M]) -> f32[N, M]:
    C = empty((N, M), f32)
    for i in range(N):
        for j in range(M):
            C[i, j] = B[i, j]
            for k in range(i):
                for n in range(k, i):
                    C[i, j] = A[i, k] * C[i, j] - A[k, n]
    return C


def test_triangles_of_any_size_are_a_polynomial() -> None:
    scop = triangles.scop()
    fn = lower(scop, scop.tree, "triangles", targets.get("x86-64-v3"), vectorise=False)
    formula = work_of(fn, context_of(scop)).iterations
    assert formula is not None and formula.exact
    for n, m in ((1, 4), (5, 2), (9, 7), (14, 3)):
        inner = sum(1 + (i - k) for i in range(n) for k in range(i))
        assert formula(N=n, M=m) == n + n * m + m * inner


@op
def sparse(ptr: i32[N + 1], idx: i32[K], val: f32[K], x: f32[M]) -> f32[N]:
    y = zeros(N, f32)
    for i in range(N):
        for p in range(ptr[i], ptr[i + 1]):
            y[i] += val[p] * x[idx[p]]
    return y


@pytest.mark.parametrize("plain", [False, True], ids=["vectors", "plain"])
def test_subscripts_bound_loops_that_data_end(tmp_path: Path, plain: bool) -> None:
    """Rows of any lengths, and rows that all have all elements, which is as often as the formula says."""
    scop = sparse.scop()
    code = code_of(scop, "x86-64-v3")
    version = code.plain if plain or code.vectors is None else code.vectors
    work = work_of(version.fn, context_of(scop))
    assert work.iterations is not None and not work.iterations.exact and work.inside
    assert all(line in code.header() for line in work.iterations.lines())
    rng = np.random.default_rng(0)
    for case, (n, k, m) in enumerate([(5, 40, 7), (9, 33, 3), (1, 1, 1), (40, 3, 2)]):
        sizes = {"N": n, "K": k, "M": m}
        ends = np.sort(rng.integers(0, k + 1, n + 1))
        if case == 1:
            ends = np.arange(n + 1) % 2 * k  # rows of all elements, and of none
        given = {
            "ptr": ends.astype(np.int32), "idx": rng.integers(0, m, k).astype(np.int32),
            "val": np.ones(k, np.float32), "x": np.ones(m, np.float32), "y": np.ones(n, np.float32),
        }  # fmt: skip
        folder = tmp_path / str(case)
        folder.mkdir()
        seen = ran(scop, code, sizes, folder, plain, given)
        assert int(np.maximum(np.diff(ends), 0).sum()) // 16 < seen <= work.iterations(sizes)


@op
def halved(x: f32[N]) -> f32[N]:
    y = zeros(N, f32)
    for i in range(N):
        y[i] = x[i]
        while y[i] > 1.0:
            y[i] = y[i] * 0.5
    return y


def test_a_loop_without_a_bound_is_named() -> None:
    code = code_of(halved.scop(), "c99")
    assert "no bound; data end the loop" in code.header() and "no subscript limits it" in code.header()


def _at(e: object, sizes: dict[str, int]) -> int:
    from polyc.poly.binding import evaluate

    return evaluate(e, sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [network])
def test_models(tmp_path: Path, model: object) -> None:
    folder = tmp_path / "c"
    export_c(model(), folder, "net", CompileOptions(dims={"N": 2}))  # type: ignore[operator]
    header = (folder / "net.h").read_text()
    kernels = folder / "net_kernels.c"
    kernels.write_text("long polyc_seen = 0;\n" + counted(kernels.read_text()))
    library = built(folder)
    sizes = [int(n) for n in re.findall(r"#define NET_\w+_SIZE (\d+)", header)]
    arguments = [np.zeros(n + 8, np.float64).ctypes.data_as(ctypes.c_void_p) for n in sizes]
    library.net_run(*arguments)
    seen = ctypes.c_long.in_dll(library, "polyc_seen").value
    most = re.search(r"#define NET_MOST_ITERATIONS (\d+)", header)
    assert most is not None and 0 < seen <= int(most[1])


def test_operations_are_those_of_the_loops() -> None:
    """Counted by hand for the three operators."""
    made = {o.scop().name: operations_of(o.scop()) for o in (matmul, normalised, lu)}
    assert made["matmul"](M=3, N=4, K=5) == 2 * 3 * 4 * 5  # type: ignore[misc]
    assert made["normalised"](M=3, N=4) == 3 * 3 * 4  # type: ignore[misc]
    n = 6
    assert made["lu"](N=n) == sum((n - 1 - k) + 2 * (n - 1 - k) ** 2 for k in range(n))  # type: ignore[misc]


def test_the_stack_is_what_a_compiler_finds(tmp_path: Path) -> None:
    """GCC's own account of the frames: the arrays are in it."""
    compiler = str(cc.find_compiler())
    if "gcc" not in subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.lower():
        pytest.skip("needs GCC's -fstack-usage")
    folder = tmp_path / "c"
    export_c(network(), folder, "net", CompileOptions(dims={"N": 2}))
    arrays = re.search(r"#define NET_STACK_BYTES (\d+)", (folder / "net.h").read_text())
    assert arrays is not None
    subprocess.run([compiler, "-O0", "-w", "-c", "-fstack-usage", "net_kernels.c"], cwd=folder, check=True)
    frames = [int(line.split("\t")[1]) for line in (folder / "net_kernels.su").read_text().splitlines()]
    assert int(arrays[1]) <= max(frames)
