"""Arguments of other packages, strided arrays updated in place, and `out=`, compiled and as plain Python."""

from __future__ import annotations

import array
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lent_arrays import Lends

from polyc import ArgumentError, Operator, bf16, dims, empty, f32, i32, inout, op
from polyc.poly import dlpack
from polyc.poly.dtypes import BY_NAME
from polyc.poly.host_arrays import as_array

M, N = dims("M N")


@op
def twice(X: f32[M, N]) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            Y[i, j] = X[i, j] * 2.0
    return Y


@op
def add_to(A: inout(f32[M, N]), X: f32[M, N]):
    for i in range(M):
        for j in range(N):
            A[i, j] += X[i, j]


@op
def widen(X: bf16[N]) -> f32[N]:
    Y = empty((N,), f32)
    for i in range(N):
        Y[i] = f32(X[i])
    return Y


@op
def low_and_total(X: i32[N]):
    low = empty((N,), i32)
    total = empty((), i32)
    total[()] = 0
    for i in range(N):
        low[i] = X[i] % 10
        total[()] += X[i]
    return low, total


@op
def own_out(X: f32[N], out: inout(f32[N])):
    for i in range(N):
        out[i] = X[i]


WAYS: list[Callable[[Operator], Callable[..., Any]]] = [lambda o: o, lambda o: o.python, lambda o: o.compile()]
ways = pytest.mark.parametrize("way", WAYS, ids=["compiled", "python", "kernel"])


class LendsOld(Lends):
    """The same, from before version 1."""

    def __dlpack__(self, stream: object = None) -> object:
        return self.array.__dlpack__()


class Bf16(Lends):
    """NumPy itself lends no bfloat16."""

    def __dlpack__(self, **how: object) -> object:
        x = self.array
        return dlpack.lend(x.ctypes.data, 0, dlpack.CPU, x.shape, BY_NAME["bf16"], x)


class Interface:
    """NumPy's own protocol of version 3."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__


class Converts:
    """`__array__`, without a copy where that is asked for."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array.copy() if copy else self.array


class Copies:
    """`__array__` as it was before NumPy 2: nobody knows whose memory it gives."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None) -> np.ndarray:
        return self.array.copy()


def numbers(m: int, n: int) -> np.ndarray:
    return np.arange(m * n, dtype=np.float32).reshape(m, n)


@ways
@pytest.mark.parametrize("kind", [Lends, LendsOld, Interface, Converts, memoryview])
def test_arrays_of_other_packages_are_used_where_they_lie(way: Any, kind: Any) -> None:
    x, a = numbers(3, 4), np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(way(twice)(kind(x)), 2 * x)
    strided = numbers(6, 8)[::-2, 1::2]
    np.testing.assert_array_equal(way(twice)(kind(strided)), 2 * strided)
    way(add_to)(kind(a), kind(x))
    np.testing.assert_array_equal(a, 1 + x)
    y = np.zeros((3, 4), np.float32)
    target = kind(y)
    assert way(twice)(x, out=target) is target
    np.testing.assert_array_equal(y, 2 * x)


@ways
def test_bfloat16_and_bytes(way: Any) -> None:
    x = np.array([1.5, -2.0, 3.0], ml_dtypes.bfloat16)
    assert way(widen)(Bf16(x)).tolist() == [1.5, -2.0, 3.0]
    assert way(widen)(x[::-1]).tolist() == [3.0, -2.0, 1.5]
    low, total = way(low_and_total)(array.array("i", [7, 13]))
    assert low.tolist() == [7, 3] and total == 20


@ways
def test_memory_maps_and_subclasses(way: Any, tmp_path: Path) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(2, 3))
    x[...] = numbers(2, 3)
    np.testing.assert_array_equal(way(twice)(x), 2 * numbers(2, 3))
    way(add_to)(x, x.copy())
    np.testing.assert_array_equal(np.asarray(x), 2 * numbers(2, 3))
    frozen = np.memmap(tmp_path / "x", np.float32, "r", shape=(2, 3))
    with pytest.raises(ArgumentError, match="read-only"):
        way(add_to)(frozen, x)
    matrix = numbers(2, 3).view(np.matrix)
    result = way(twice)(matrix)
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, 2 * numbers(2, 3))


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@ways
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (Lends(read_only(numbers(2, 3))), "read-only"),
        (Converts(read_only(numbers(2, 3))), "read-only"),
        (Copies(numbers(2, 3)), "does not lend its memory"),
        (Lends(numbers(2, 3), (2, 0)), r"the Lends lies on a device \(DLPack \(2, 0\)\)"),
        (Lends(np.zeros((2, 3), complex)), "no counterpart in polyc"),
        (np.ma.masked_less(numbers(2, 3), 2), "masked array"),
        (numbers(2, 3).astype(">f4"), "(big-endian|byte order)"),
        (numbers(2, 3).astype("f8"), "(is f64|dtype float64)"),
        ([[1.0, 2.0]], "NumPy array"),
        (np.broadcast_to(np.float32(1), (2, 3)), "read-only"),
        (np.lib.stride_tricks.as_strided(np.zeros(9, np.float32), (2, 3), (4, 4)), "several of its elements"),
    ],
    ids=lambda v: "" if isinstance(v, str) else type(v).__name__,
)
def test_what_cannot_be_written_is_refused(way: Any, argument: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        way(add_to)(argument, numbers(2, 3))


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of shape (3, 4) with other strides than row-major ones."""
    wide = np.zeros((7, 12), np.float32)
    raw = np.zeros(49, np.uint8)
    made = {
        "fortran": np.zeros((3, 4), np.float32, order="F"),
        "every other": wide[1::2, ::3],
        "backwards": np.zeros((3, 4), np.float32)[::-1, ::-1],
        "transposed": np.zeros((4, 3), np.float32).T,
        "unaligned": raw[1:].view(np.float32).reshape(3, 4),
        "part of a record": np.zeros((3, 4), [("a", np.int8), ("x", np.float32)])["x"],
    }
    for view in made.values():
        view[...] = x
    return made


@ways
@pytest.mark.parametrize("name", list(views(numbers(3, 4))))
def test_strided_arrays_are_updated_in_place(way: Any, name: str) -> None:
    a = views(numbers(3, 4))[name]
    base, run = a.base, way(add_to)
    assert base is not None or name == "fortran"
    outside = None if base is None or base.dtype != np.float32 else base.sum() - a.sum()
    run(a, np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(a, numbers(3, 4) + 1)
    run(a, a)  # an input is read as it was before
    np.testing.assert_array_equal(a, 2 * (numbers(3, 4) + 1))
    if outside is not None:
        assert base.sum() - a.sum() == outside
    target = views(np.zeros((3, 4)))[name]
    assert way(twice)(a, out=target) is target
    np.testing.assert_array_equal(target, 4 * (numbers(3, 4) + 1))


def test_a_copy_there_and_back_is_noted_once() -> None:
    kernel = add_to.compile()
    x = numbers(3, 4)
    kernel(x.copy(), x)
    assert not [n for n in kernel.report()["notes"] if "copied" in n]
    for _ in range(2):
        kernel(np.asfortranarray(x), x)
    assert [n for n in kernel.report()["notes"] if "copied" in n] == [
        "'A' is copied there and back in calls where it is not contiguous (row-major)"
    ]
    add_to(np.asfortranarray(x), x)
    assert any("copied there and back" in n for n in add_to.notes)


@ways
def test_arrays_between_each_other(way: Any) -> None:
    """Views that interleave in one array do not overlap; those that do are refused, however they are strided."""
    whole = np.zeros((4, 8), np.float32)
    whole[:, 1::2] = numbers(4, 4)
    way(add_to)(whole[:, ::2], whole[:, 1::2])
    np.testing.assert_array_equal(whole[:, ::2], numbers(4, 4))
    shifted = numbers(4, 5)
    expected = shifted[:, :4] + shifted[:, 1:]
    way(add_to)(shifted[:, :4], shifted[:, 1:])
    np.testing.assert_array_equal(shifted[:, :4], expected)
    x = np.arange(8, dtype=np.int32)
    with pytest.raises(ArgumentError, match="'low' and 'total' are both written, but share memory"):
        way(low_and_total)(x[:4], out=(x[:8:2], x[4:5].reshape(())))
    assert x.tolist() == list(range(8))


@ways
def test_out(way: Any) -> None:
    x = np.array([12, 25], np.int32)
    low, total = np.zeros(2, np.int32), np.zeros((), np.int32)
    run = way(low_and_total)
    given = low, total
    assert run(x, out=given) is given and low.tolist() == [2, 5] and total == 37
    made = run(x + 1, out=(None, total))
    assert made[1] is total and made[0].tolist() == [3, 6] and total == 39
    made = run(x, out={"low": low})
    assert made[0] is low and low.tolist() == [2, 5] and made[1] == 37
    a = numbers(3, 3)
    assert way(twice)(a, out=a) is a  # over its input
    np.testing.assert_array_equal(a, 2 * numbers(3, 3))
    for out, message in {
        "one": (low, "has 2 results, but out= has 1"),
        "name": ({"high": low}, r"has no result 'high' for out= \(results: low, total\)"),
        "dtype": (
            (low.astype("i8"), total),
            r"out= for 'low' must be a writable int32 array of shape \(2,\), not int64",
        ),
        "order": ((low.astype(">i4"), total), "not >i4"),
        "shape": ((np.zeros(3, np.int32), total), r"of shape \(2,\), not int32 \(3,\)"),
        "list": (([0, 0], total), "takes a NumPy array, the argument is a list"),
        "read": ((read_only(np.zeros(2, np.int32)), total), "read-only"),
    }.values():
        with pytest.raises(ArgumentError, match=message):
            run(x, out=out)
    with pytest.raises(ArgumentError, match="no results to write to out="):
        way(add_to)(a, a, out=a)


@ways
def test_a_parameter_called_out_is_a_parameter(way: Any) -> None:
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    assert way(own_out)(x, out=y) is None and y.tolist() == [1, 1, 1]


@pytest.mark.parametrize("way", WAYS[:2], ids=["compiled", "python"])
def test_empty_arrays(way: Any) -> None:
    assert way(twice)(Lends(np.zeros((0, 4), np.float32))).shape == (0, 4)


def test_calls_with_out_use_one_kernel() -> None:
    x, y = numbers(5, 7), np.empty((5, 7), np.float32)
    twice(x)
    before = sum(map(len, twice._kernels.values()))
    twice(x, out=y)
    twice(Lends(x), out=Lends(y))
    assert sum(map(len, twice._kernels.values())) == before
    np.testing.assert_array_equal(y, 2 * x)


@ways
def test_torch(way: Any) -> None:
    torch = pytest.importorskip("torch")
    x, a = torch.arange(12, dtype=torch.float32).reshape(3, 4), torch.ones(4, 3).T
    assert torch.equal(torch.from_numpy(way(twice)(x)), 2 * x)
    way(add_to)(a, x)
    assert torch.equal(a, 1 + x)
    y = torch.zeros(3, 4)
    assert way(twice)(x, out=y) is y and torch.equal(y, 2 * x)
    assert way(widen)(torch.tensor([1.5, -2.0], dtype=torch.bfloat16)).tolist() == [1.5, -2.0]
    with pytest.raises(ArgumentError, match="requires? grad"):
        way(twice)(x.clone().requires_grad_())
    with pytest.raises(ArgumentError, match="gives no array"):
        way(twice)(torch.ones(3, 4).to_sparse())


@op
def mixed(A: inout(f32[M, N]), X: f32[M, N], B: inout(f32[M])) -> f32[M, N]:
    Y = empty((M, N), f32)
    for i in range(M):
        for j in range(N):
            A[i, j] = A[i, j] + 2.0 * X[i, N - 1 - j]
            Y[i, j] = A[i, j] - X[M - 1 - i, j]
        B[i] += A[i, 0]
    return Y


def view(rng: np.random.Generator, buffer: np.ndarray, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """A random place in a buffer: the first element and the strides, in elements."""
    strides = tuple(
        int(s)
        for s in rng.choice(
            [-9, -4, -1, 1, 5, 13, 0], len(shape), p=[0.2, 0.1, 0.15, 0.2, 0.1, 0.2, 0.05], replace=False
        )
    )
    low = sum(min(0, s * (n - 1)) for s, n in zip(strides, shape))
    high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape))
    return int(rng.integers(-low, len(buffer) - high)), strides


def test_random_views_of_one_buffer() -> None:
    """However arguments and results lie in each other, the compiled run does what plain Python does, or both refuse."""
    rng = np.random.default_rng(7)
    refused, ran = 0, 0
    m, n = 3, 4
    kernel = mixed.compile(M=m, N=n)
    for _ in range(200):
        start = rng.integers(0, 5, 250).astype(np.float32)
        shapes = [(m, n), (m, n), (m,), (m, n)]
        places = [view(rng, start, s) for s in shapes]
        apart = [rng.random() < 0.4 for _ in shapes]
        outcome: list[Any] = []
        for run in (mixed.python, mixed, kernel):
            whole = start.copy()
            args = []
            for shape, (first, strides), own in zip(shapes, places, apart):
                base = start.copy() if own else whole
                steps = tuple(4 * s for s in strides)
                args.append(np.lib.stride_tricks.as_strided(base[first:], shape, steps))
            try:
                result = run(*args[:3], out=args[3])
            except ArgumentError as error:
                outcome.append(str(error).rpartition(": ")[2])
                continue
            assert result is args[3]
            outcome.append([whole.tolist(), *(a.tolist() for a in args)])
        assert outcome[0] == outcome[1] == outcome[2], (places, apart)
        refused += isinstance(outcome[0], str)
        ran += not isinstance(outcome[0], str)
    assert refused > 40 and ran > 40, (refused, ran)


@pytest.mark.parametrize("kind", [Lends, LendsOld, Interface, Converts])
def test_memory_is_lent_and_given_back(kind: Any) -> None:
    x = numbers(3, 4)[:, ::-1]
    base = weakref.ref(x.base)
    array = as_array(kind(x), "X", written=True)
    assert np.shares_memory(array, x) and array.flags.writeable and array.strides == x.strides
    del x
    gc.collect()
    assert base() is not None and array[0, 0] == 3
    del array
    gc.collect()
    assert base() is None


@ways
def test_read_only_arrays_are_inputs(way: Any) -> None:
    x = read_only(numbers(2, 3))
    for kind in (Lends, Interface, Converts, memoryview):
        np.testing.assert_array_equal(way(twice)(kind(x)), 2 * x)
        assert not as_array(kind(x), "X").flags.writeable
