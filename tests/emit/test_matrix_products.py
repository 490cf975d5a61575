"""Products of whole matrices (AMX): the same on all back ends, and the instructions where a machine has them.

The interpreter runs what the passes made for `sapphire-rapids` on every machine; NumPy's int64 is the judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polyc import dims, dot_bytes, empty, i32, min, op
from polyc.emit import compile as emit_compile
from polyc.emit import targets
from polyc.emit.interpreter import interp
from polyc.emit.kernel import Kernel
from polyc.emit.loop_ir.loops import MatrixProduct, MatrixShapes, walk
from polyc.emit.loop_ir.parser import parse
from polyc.emit.loop_ir.printer import exact_text
from polyc.poly.errors import BuildError

M, N, K, H, W, C, F = dims("M N K H W C F")
AMX = targets.get("sapphire-rapids")
HERE = targets.obstacle(AMX) is None or bool(targets.host().matrix)
rng = np.random.default_rng(7)


@op
def product(A: i32[M, K], B: i32[K, N], S: i32[N]) -> i32[M, N]:
    """Unsigned bytes of A times signed ones of B, and start values."""
    Y = empty((M, N), i32)
    for i in range(M):
        for j in range(N):
            Y[i, j] = S[j]
            for k in range(K):
                Y[i, j] += dot_bytes(A[i, k], B[k, j])
    return Y


@op
def signed_rows(A: i32[M, K], B: i32[K, N], S: i32[N]) -> i32[M, N]:
    """Signed bytes of A times unsigned ones of B."""
    Y = empty((M, N), i32)
    for i in range(M):
        for j in range(N):
            Y[i, j] = S[j]
            for k in range(K):
                Y[i, j] += dot_bytes(B[k, j], A[i, k])
    return Y


@op
def convolution(X: i32[H + 2, W + 2, C], F3: i32[3, 3, C, F]) -> i32[H, W, F]:
    """3 x 3 windows; the words of a pixel lie side by side."""
    Y = empty((H, W, F), i32)
    for h in range(H):
        for w in range(W):
            for f in range(F):
                Y[h, w, f] = 0
                for p in range(3):
                    for q in range(3):
                        for c in range(C):
                            Y[h, w, f] += dot_bytes(X[h + p, w + q, c], F3[p, q, c, f])
    return Y


@op
def requantised(A: i32[M, K], B: i32[K, N], S: i32[N], R: i32[M, N]) -> i32[M, N]:
    """Start values, and what follows the sums row by row: half of them and another array, cut off at 255."""
    T, Y = empty((M, N), i32), empty((M, N), i32)
    for i in range(M):
        for j in range(N):
            T[i, j] = S[j] + i
            for k in range(K):
                T[i, j] += dot_bytes(A[i, k], B[k, j])
    for i in range(M):
        for j in range(N):
            Y[i, j] = min(T[i, j] // 2 + R[i, j], 255)
    return Y


def words(*shape: int) -> np.ndarray[Any, Any]:
    """Any bits; a quarter of the bytes are extreme."""
    found = rng.integers(0, 256, (*shape, 4)).astype(np.uint8)
    found[rng.random(found.shape) < 0.25] = rng.choice(np.array([0, 127, 128, 255], np.uint8))
    return found.view(np.int32)[..., 0]


def exact(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], s: np.ndarray[Any, Any], first: type, second: type) -> Any:
    """`s + a @ b` of bytes."""
    left = a.view(first).reshape(len(a), -1).astype(np.int64)
    right = b.view(second).reshape(*b.shape, 4).transpose(0, 2, 1).reshape(-1, b.shape[1]).astype(np.int64)
    return (left @ right + s).astype(np.int32)


def interpreted(kernel: Kernel, arrays: dict[str, np.ndarray[Any, Any]], result: np.ndarray[Any, Any]) -> Any:
    """What the interpreter makes of the finished loops."""
    interp.run(kernel.function, {**arrays, "Y": result}, {})
    return result


def products(kernel: Kernel) -> list[MatrixProduct]:
    return [s for s in walk(kernel.function.body) if isinstance(s, MatrixProduct)]


SIZES = [(49, 100, 36), (17, 16, 16), (2, 16, 4), (33, 47, 20), (64, 8, 12)]


@pytest.mark.parametrize("operator, first, second", [(product, np.uint8, np.int8), (signed_rows, np.int8, np.uint8)])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_exact(operator: Any, first: type, second: type, m: int, n: int, k: int) -> None:
    a, b, s = words(m, k), words(k, n), words(n)
    kernel = operator.compile(target=AMX, M=m, N=n, K=k)
    want = exact(a, b, s, first, second)
    assert products(kernel) and all(x.swapped == (first is np.int8) for x in products(kernel))
    np.testing.assert_array_equal(interpreted(kernel, {"A": a, "B": b, "S": s}, np.empty((m, n), np.int32)), want)
    if HERE:
        here = operator.compile(M=m, N=n, K=k)
        assert products(here)
        np.testing.assert_array_equal(here(a, b, s), want)


@pytest.mark.parametrize("m, n, k", [(64, 64, 16), (49, 100, 36)])
def test_what_follows_row_by_row(m: int, n: int, k: int) -> None:
    """Registers begin at 0, start values are added afterwards, in the loop over rows that does the rest."""
    a, b, s, r = words(m, k), words(k, n), words(n), words(m, n) >> 8
    kernel = requantised.compile(target=AMX, M=m, N=n, K=k)
    text = kernel.source("loops")
    assert "m0 = 0" in text and "m0 = matrix" not in text and "alloc_register(i32[1, " in text
    sums = exact(a, b, s, np.uint8, np.int8) + np.arange(m, dtype=np.int32)[:, None]
    want = np.minimum(sums // 2 + r, 255)
    got = interpreted(kernel, {"A": a, "B": b, "S": s, "R": r}, np.empty((m, n), np.int32))
    np.testing.assert_array_equal(got, want)
    if HERE:
        np.testing.assert_array_equal(requantised.compile(M=m, N=n, K=k)(a, b, s, r), want)


@pytest.mark.parametrize("threads, h, w, c, f", [(1, 7, 14, 8, 40), (2, 7, 7, 32, 64)])
def test_convolution(threads: int, h: int, w: int, c: int, f: int) -> None:
    """Rows of the second one are so short that a tile has several lines of the image, and a rest of them."""
    x, weights = words(h + 2, w + 2, c), words(3, 3, c, f)
    want = np.zeros((h, w, f), np.int64)
    left, right = (v.view(t).reshape(*v.shape, 4).astype(np.int64) for v, t in ((x, np.uint8), (weights, np.int8)))
    for p in range(3):
        for q in range(3):
            want += np.einsum("hwcb,cfb->hwf", left[p : p + h, q : q + w], right[p, q])
    kernel = convolution.compile(target=AMX, threads=threads, H=h, W=w, C=c, F=f)
    assert products(kernel) and ("h_out" in kernel.source("loops")) == (w == 7)
    got = interpreted(kernel, {"X": x, "F3": weights}, np.empty((h, w, f), np.int32))
    np.testing.assert_array_equal(got, want)
    if HERE:
        for times in range(3):
            np.testing.assert_array_equal(convolution.compile(threads=threads, H=h, W=w, C=c, F=f)(x, weights), want)


def test_in_c() -> None:
    """The loops in C, where registers are arrays."""
    from polyc.emit.c import cc

    kernel = product.compile(target=AMX, M=33, N=40, K=24)
    if cc.find_compiler() is None:
        pytest.skip("no C compiler")
    native = emit_compile.load(cc.build_shared(kernel.source("c")), kernel.function.name, "c")
    a, b, s = words(33, 24), words(24, 40), words(40)
    kernel = Kernel(kernel.scop, kernel.function, targets.host(), "c", 1, native, kernel.report)
    np.testing.assert_array_equal(kernel(a, b, s), exact(a, b, s, np.uint8, np.int8))


def test_instructions() -> None:
    kernel = product.compile(target=AMX, M=128, N=64, K=64)
    text = kernel.source("asm")
    for word in ("ldtilecfg", "tileloadd", "tdpbusd", "tilestored", "tilerelease"):
        assert word in text
    assert text.count("ldtilecfg") == 1  # outside of all loops
    assert "tdpbsud" in signed_rows.compile(target=AMX, M=128, N=64, K=64).source("asm")
    assert "tdpb" not in product.compile(target=AMX.without_matrices(), M=128, N=64, K=64).source("asm")
    assert "tdpb" not in product.compile(target=AMX, N=64, K=64).source("asm")  # any number of rows
    assert "tdpb" not in product.compile(target=AMX, M=1, N=64, K=64).source("asm")


def test_text_is_read_back() -> None:
    fn = product.compile(target=AMX, M=49, N=100, K=36).function
    assert exact_text(parse(exact_text(fn))) == exact_text(fn)
    assert any(isinstance(s, MatrixShapes) for s in walk(parse(exact_text(fn)).body))


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t.replace("m0 += dot_bytes(", "m0 += dot_pairs(", 1), "not multiplied by 'dot_pairs'"),
        (lambda t: t.replace("matrices 1", "matrices 9", 1), "a matrix register of"),
        (lambda t: t.replace("m0 += dot_bytes", "m9 += dot_bytes", 1), "no matrix register 9"),
    ],
)
def test_wrong_loops(change: Callable[[str], str], said: str) -> None:
    from polyc.emit.loop_ir.verify import verify

    text = exact_text(product.compile(target=AMX, M=32, N=32, K=32).function)
    assert change(text) != text
    with pytest.raises(BuildError, match=said):
        verify(parse(change(text)))


def test_shapes_must_fit() -> None:
    text = exact_text(product.compile(target=AMX, M=32, N=32, K=32).function)
    wrong = parse(text.replace("matrices 16x16", "matrices 15x16", 1))
    arrays = {"A": words(32, 32), "B": words(32, 32), "S": words(32), "Y": np.empty((32, 32), np.int32)}
    with pytest.raises(BuildError, match="is added to"):
        interp.run(wrong, arrays, {})


def test_permission_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it no such code is made, and none is loaded."""
    from polyc.emit import matrix_permission

    if not targets.host().matrix:
        pytest.skip("this machine has no AMX")
    monkeypatch.setattr(matrix_permission, "granted", lambda: False)
    refused = targets.host.__wrapped__()
    assert refused.matrix == "" and "-amx-tile" in refused.features
    monkeypatch.setattr(targets, "host", lambda: refused)
    assert "amx" in str(targets.obstacle(AMX))
    assert "tdpb" not in product.compile(M=64, N=64, K=64).source("asm")


def test_wrong_target(tmp_path: Any) -> None:
    lacking, unknown = 'base = "x86-64-v4"\nmatrix = "dot_bytes"', 'base = "x86-64-v4"\nmatrix = "sums"'
    for text, said in ((lacking, "amx-int8"), (unknown, "some of")):
        file = tmp_path / "odd.toml"
        file.write_text(text)
        with pytest.raises(BuildError, match=said):
            targets.get(file)
