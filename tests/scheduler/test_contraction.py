"""Contractions: found from access expressions, tiled in registers, fused with what follows."""

from dataclasses import replace

import numpy as np
import pytest

import polyc
from examples.matmul import matmul
from polyc import dims, empty, f32, f64, grid, i64, op
from polyc.emit import targets
from polyc.emit.compile import compile_kernel
from polyc.frontend_dsl.library.convolution import make_conv2d, make_pointwise
from polyc.frontend_dsl.library.matrix import make_matmul
from polyc.graph_driver.worker.compile_operator import compile_operator
from polyc.poly.dtypes import f32 as single
from polyc.poly.expr import Var
from polyc.poly.rewriting.relayout import relayout
from polyc.poly.rewriting.stored import lay_out
from polyc.poly.scop import Scop
from polyc.poly.tree import Band, Promote, walk
from polyc.scheduler.cost.register_tile import choose
from polyc.scheduler.cost.tile_plan import constant_layouts, plan_tile
from polyc.scheduler.recognition.contraction import recognise
from polyc.scheduler.strategies.auto import automatic

M, N, K = dims("M N K")
V3 = targets.get("x86-64-v3")


@op
def transposed(A: f64[K, M], B: f64[N, K]) -> f64[M, N]:
    C = empty((M, N), f64)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[k, i] * B[j, k]
    return C


@op
def biased(A: f32[M, K], B: f32[K, N], v: f32[N]) -> f32[M, N]:
    C = empty((M, N), f32)
    D = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = v[j]
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    for i, j in grid(M, N):
        D[i, j] = max(C[i, j], 0.0)
    return D


def make_convolution(channels: int, outputs: int, size: int, k: int, stride: int):
    result = (size - k) // stride + 1

    @op
    def convolution(X: f32[channels, size, size], W: f32[outputs, channels, k, k]) -> f32[outputs, result, result]:
        Y = empty((outputs, result, result), f32)
        for o, h, w in grid(outputs, result, result):
            Y[o, h, w] = 0.0
            for c, r, s in grid(channels, k, k):
                Y[o, h, w] += X[c, stride * h + r, stride * w + s] * W[o, c, r, s]
        return Y

    return convolution


def draw(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (5, 17, 3), (63, 31, 20), (64, 48, 33), (97, 16, 8)])
def test_products_at_sizes_that_divide_nothing(m: int, n: int, k: int) -> None:
    a, b = draw((m, k)), draw((k, n))
    assert np.allclose(matmul(a, b), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)
    a64, b64 = draw((k, m), np.float64), draw((n, k), np.float64)
    assert np.allclose(transposed(a64, b64), a64.T @ b64.T, rtol=1e-12, atol=1e-12)


def test_symbolic_sizes_get_the_same_tree_and_run() -> None:
    kernel = compile_operator(matmul.scop(), threads=1)
    for m, n, k in ((7, 30, 5), (33, 64, 9)):
        a, b = draw((m, k)), draw((k, n))
        assert np.allclose(kernel(a, b), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_the_epilogue_is_applied_in_registers() -> None:
    schedule = automatic(biased.scop(), V3)
    promoted = {n.array: n for n in walk(schedule.tree) if isinstance(n, Promote)}
    assert promoted["C"].space == "register" and not promoted["C"].copy_out and not promoted["C"].copy_in
    assert any("fused with" in note for note in schedule.notes)
    a, b, v = draw((30, 40)), draw((40, 50)), draw((50,))
    expected = np.maximum(a.astype(np.float64) @ b + v, 0)
    assert np.allclose(biased(a, b, v), expected, rtol=1e-5, atol=1e-5)


@op
def rectified(A: f32[M, K], B: f32[K, N], D: f32[M, N]) -> f32[M, N]:
    C = empty((M, N), f32)
    for i, j in grid(M, N):
        C[i, j] = 0.0
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]
    for i, j in grid(M, N):
        C[i, j] += D[i, j]
    for i, j in grid(M, N):
        C[i, j] = max(C[i, j], 0.0)
    return C


def test_an_epilogue_written_in_place_joins_the_tile() -> None:
    """`C = max(C, 0)` for every element reduces nothing, though it reads what it writes."""
    schedule = automatic(rectified.scop(), V3)
    assert any("fused with S2, S3" in note for note in schedule.notes), schedule.notes
    m, n, k = np.random.default_rng().integers(1, 70, 3)
    a, b, d = draw((m, k)), draw((k, n)), draw((m, n))
    expected = np.maximum(a.astype(np.float64) @ b + d, 0)
    assert np.allclose(rectified(a, b, d), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("channels, outputs, size, k, stride", [(3, 16, 12, 3, 1), (4, 10, 11, 3, 2), (8, 24, 7, 1, 1)])
@pytest.mark.parametrize("packed", [False, True])
def test_convolutions_with_and_without_packed_weights(
    channels: int, outputs: int, size: int, k: int, stride: int, packed: bool
) -> None:
    scop = make_convolution(channels, outputs, size, k, stride).scop()
    x, w = draw((channels, size, size)), draw((outputs, channels, k, k))
    expected = make_convolution(channels, outputs, size, k, stride).python(x, w)
    if packed:
        for array, layout in constant_layouts(scop, frozenset({"W"}), targets.host()).items():
            scop, w = relayout(scop, array, layout), lay_out(w, layout)
    assert np.allclose(compile_operator(scop, threads=1)(x, w), expected, rtol=1e-4, atol=1e-4)


def update_of(scop: Scop):
    return next(s for s in scop.statements.values() if s.reduction)


def test_roles_of_the_iterators() -> None:
    c = recognise(update_of(make_convolution(3, 8, 10, 3, 1).scop()))
    assert c is not None
    assert c.outputs == ("o", "h", "w") and c.inner == ("c", "r", "s")
    assert {op.load.array: op.own for op in c.operands} == {"X": ("h", "w"), "W": ("o",)}


def test_what_is_no_contraction() -> None:
    @op
    def squares(A: f32[M, K]) -> f32[M]:
        C = empty((M,), f32)
        for i in range(M):
            C[i] = 0.0
            for k in range(K):
                C[i] += A[i, k] * A[i, k]
        return C

    assert recognise(update_of(squares.scop())) is None


@pytest.mark.parametrize("rows, columns", [(None, None), (1, 1000), (7, 512), (1000, 64), (49, 10), (3, 3)])
@pytest.mark.parametrize("name", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_register_tiles_fit_the_register_file(rows: int | None, columns: int | None, name: str) -> None:
    target = targets.get(name)
    tile = choose(rows, columns, target.lanes(32), target)
    assert tile.rows * tile.vectors + tile.vectors + 1 < target.vector_registers
    assert 0 < tile.efficiency <= 1


def test_the_inner_loop_keeps_its_accumulators_in_registers() -> None:
    """No store of a vector register to the stack between the loads of the reduction loop."""
    kernel = compile_operator(matmul.scop(), threads=1, sizes={"M": 64, "N": 64, "K": 64})
    fused = [line for line in kernel.source("asm").splitlines() if "vfmadd" in line]
    if not fused:
        pytest.skip("this CPU has no fused multiply-add")
    assert not any("rsp" in line or "rbp" in line for line in fused)


def test_loops_of_the_tree_have_unique_names() -> None:
    tree = automatic(biased.scop(), V3).tree
    names = [m.name for n in walk(tree) if isinstance(n, Band) for m in n.members]
    assert len(names) == len(set(names))


def test_a_buffer_swept_by_a_data_dependent_loop_is_refused() -> None:
    @op
    def gathered(A: f32[N], start: i64[M + 1]) -> f32[M]:
        C = empty((M,), f32)
        for i in range(M):
            C[i] = 0.0
            for k in range(start[i], start[i + 1]):
                C[i] += A[k]
        return C

    with pytest.raises(polyc.ScheduleError, match="data-dependent loop 'k' decides"):
        gathered.scop().schedule().promote("A", at="i", space="heap")


@pytest.mark.parametrize("shape", [(3, 50, 33, 21), (2, 97, 64, 40)])
def test_batched_panels_are_packed_where_they_are_used(shape: tuple[int, int, int, int]) -> None:
    b, m, k, n = shape

    @op
    def batched(A: f32[b, m, k], B: f32[b, k, n]) -> f32[b, m, n]:
        C = empty((b, m, n), f32)
        for q, i, j in grid(b, m, n):
            C[q, i, j] = 0.0
            for r in range(k):
                C[q, i, j] += A[q, i, r] * B[q, r, j]
        return C

    scop = batched.scop()
    for threads in (1, 2):
        schedule = automatic(scop, V3, threads)
        packed = [n for n in walk(schedule.tree) if isinstance(n, Promote) and n.array == "B"]
        assert [p.space for p in packed] == ["local"]
        rng = np.random.default_rng(b)
        x, y = rng.standard_normal((b, m, k), "f"), rng.standard_normal((b, k, n), "f")
        kernel = compile_operator(scop, targets.get(), schedule, threads)
        np.testing.assert_allclose(kernel(x, y), x @ y, rtol=1e-4, atol=1e-4)


@op
def batched_products(V: f32[3, 64, 5000], U: f32[3, 64, 32]) -> f32[3, 5000, 32]:
    Y = empty((3, 5000, 32), f32)
    for b, p, o in grid(3, 5000, 32):
        Y[b, p, o] = 0.0
        for c in range(64):
            Y[b, p, o] += V[b, c, p] * U[b, c, o]
    return Y


def test_many_rows_are_cut_into_blocks_inside_the_batch() -> None:
    """What all sweeps over the columns read stays in L2 (Winograd's products of large images)."""
    tree = automatic(batched_products.scop(), V3, 1).tree
    names = [m.name for n in walk(tree) if isinstance(n, Band) for m in n.members]
    assert names.index("b") < names.index("p.out") < names.index("o.out") < names.index("p.in.out")
    rng = np.random.default_rng(1)
    v, u = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 64, 5000), (3, 64, 32)))
    want = np.einsum("bcp,bco->bpo", v.astype(np.float64), u)
    np.testing.assert_allclose(batched_products(v, u), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(700, 49, 150), (600, 17, 129)])
def test_rows_that_lie_apart_are_copied_side_by_side(shape: tuple[int, int, int]) -> None:
    """A 1x1 convolution of a small image with many channels: pixels of a channel are a row of memory."""
    c, p, o = shape

    @op
    def pointwise(X: f32[c, p], W: f32[c, o], B: f32[o]) -> f32[o, p]:
        Y = empty((o, p), f32)
        for j, i in grid(o, p):
            Y[j, i] = B[j]
            for k in range(c):
                Y[j, i] += W[k, j] * X[k, i]
        return Y

    scop = pointwise.scop()
    for threads in (1, 2):
        schedule = automatic(scop, V3, threads)
        copies = [n for n in walk(schedule.tree) if isinstance(n, Promote) and n.buffer.endswith("_rows")]
        assert len(copies) == 1
        rng = np.random.default_rng(p)
        x, w, b = (rng.standard_normal(s, "f") for s in ((c, p), (c, o), (o,)))
        kernel = compile_operator(scop, targets.get(), schedule, threads)
        np.testing.assert_allclose(kernel(x, w, b), w.T @ x + b[:, None], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("channels, pixels, laid_out", [(256, 196, False), (512, 49, True)])
def test_several_images_are_swept_one_by_one_where_they_leave_the_cache(
    channels: int, pixels: int, laid_out: bool
) -> None:
    """Each tile of the weights would fetch all images again; one of them stays in half of L2."""
    target = replace(V3, l2=1 << 19)
    scop = make_pointwise(f32, 3, (channels, channels), pixels, True).scop()
    draw_codes = np.random.default_rng(channels).integers
    x, f = (draw_codes(-9, 9, s).astype("f4") for s in ((3, channels, pixels), (channels, channels)))
    weights = f
    if laid_out:
        layout = constant_layouts(scop, frozenset({"F"}), target)["F"]
        scop, weights = relayout(scop, "F", layout), lay_out(f, layout)
    schedule = automatic(scop, target)
    assert next(n for n in schedule.loops if n == "n" or n.endswith(".out")) == "n"
    y = compile_kernel(scop, schedule.tree, target)(x, weights, np.zeros(channels, "f4"))
    np.testing.assert_array_equal(y, np.einsum("oc,ncp->nop", f, x))


@pytest.mark.parametrize(("depth", "most"), [(1024, 6), (512, 12), (1000, 14)])
def test_rows_a_power_of_two_apart_stay_in_their_sets_of_the_cache(depth: int, most: int) -> None:
    scop = make_matmul(single, 512, depth, 8).scop()
    found = recognise(update_of(scop))
    assert found is not None
    plan = plan_tile(scop, found, V3, frozenset("B"))
    assert plan is not None and plan.columns == "j"
    assert 4 <= plan.tile.rows <= most


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("constants", [frozenset[str](), frozenset({"F"})])
def test_lanes_are_not_gathered_from_images_whose_number_nobody_knows(target: str, constants: frozenset[str]) -> None:
    """A batch of one image would leave all lanes but one empty."""
    sides, ones = dims("H W"), (1, 1)
    make = make_conv2d(single, dims("images"), (96, 24), sides, (3, 3), ones, ones, ones, ones, False)
    scop = make.scop()
    update = next(s for s in scop.statements.values() if recognise(s) is not None)
    found = recognise(update)
    assert found is not None
    plan = plan_tile(scop, found, targets.get(target), constants)
    assert plan is not None
    image, *_ = update.target.index
    assert image != Var(plan.columns)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_short_windows_over_rows_of_unknown_length_have_small_tiles(target: str) -> None:
    """All of a tile is guarded where a row ends; sums of nine steps run side by side without being written so."""
    machine = targets.get(target)
    lanes = machine.lanes(32)
    short, long = choose(1, None, lanes, machine, 9), choose(1, None, lanes, machine, 64)
    assert short.vectors == 2 < long.vectors
    assert choose(1, 8 * lanes, lanes, machine, 9).vectors > 2  # known: no guards
    assert choose(6, None, lanes, machine, 9) == choose(6, None, lanes, machine, 30)  # rows share the vectors
