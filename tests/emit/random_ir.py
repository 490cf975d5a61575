"""Random loop-IR functions over all element types, and running them on each back end."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np

from polyc.emit import targets
from polyc.emit.c import cc
from polyc.emit.c.source import to_c
from polyc.emit.interpreter import interp
from polyc.emit.kernel import NATIVE
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.loop_ir.loops import Block, Broadcast, Buffer, For, Function, Ramp, Stmt, Store, VLoad
from polyc.emit.run_time import threadpool
from polyc.poly.binding import evaluate
from polyc.poly.dtypes import ALL, DType, bool_, i64
from polyc.poly.expr import COMPARISONS, Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, const_int

LENGTH = 48
NARROW = ("f16", "bf16")


class ExprMaker:
    """Random expressions; `lanes` > 1 makes the vector form of the same grammar."""

    def __init__(self, seed: int, lanes: int, dtypes: tuple[DType, ...] = ALL) -> None:
        self.r, self.lanes, self.dtypes = random.Random(seed), lanes, dtypes

    def leaf(self, dtype: DType) -> Expr:
        if self.r.random() < 0.25:
            return self.spread(Const(self.number(dtype), dtype))
        array = f"x_{dtype.name}" if self.r.random() < 0.6 else f"y_{dtype.name}"
        if self.lanes == 1:
            return Load(array, (Var("i"),), dtype)
        return VLoad(array, (Ramp(Var("i"), 1, self.lanes, i64),), None, self.lanes, dtype)

    def spread(self, e: Expr) -> Expr:
        return e if self.lanes == 1 else Broadcast(e, self.lanes, e.dtype)

    def number(self, dtype: DType) -> Any:
        if dtype == bool_:
            return self.r.random() < 0.5
        if dtype.is_float:
            return self.r.choice([0.0, -0.0, 1.0, -1.5, 0.25, 3.0, float("inf"), 100.0])
        return self.r.randint(0 if dtype.kind == "uint" else -7, 9)

    def expr(self, dtype: DType, depth: int) -> Expr:
        if depth == 0:
            return self.leaf(dtype)
        if dtype == bool_:
            return self.boolean(depth)
        pick = self.r.random()
        if pick < 0.12:
            return Select(self.boolean(depth - 1), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1), dtype)
        if pick < 0.27:
            return self.cast(dtype, depth)
        if pick < 0.40:
            return self.unary(dtype, depth)
        ops = ["+", "-", "*", "min", "max"] + (["/", "//", "%"] if dtype.is_float else [])
        if not dtype.is_float:
            ops += ["//", "%", "&", "|", "^", "<<", ">>"]
        return Binary(self.r.choice(ops), self.expr(dtype, depth - 1), self.expr(dtype, depth - 1), dtype)

    def unary(self, dtype: DType, depth: int) -> Expr:
        if dtype.is_float:
            fns = ["abs", "floor", "ceil", "trunc", "round", "sqrt", "neg"]
            fns += ["fma"] if dtype.name not in NARROW else []
            fn = self.r.choice(fns)
            if fn == "neg":
                return Unary("neg", self.expr(dtype, depth - 1), dtype)
            arity = 3 if fn == "fma" else 1
            return Call(fn, tuple(self.expr(dtype, depth - 1) for _ in range(arity)), dtype)
        fn = self.r.choice(["neg", "~", "abs"])
        a = self.expr(dtype, depth - 1)
        return Call("abs", (a,), dtype) if fn == "abs" else Unary(fn, a, dtype)

    def cast(self, dtype: DType, depth: int) -> Expr:
        source = self.r.choice(self.dtypes)
        a = self.expr(source, depth - 1)
        if source.is_float and dtype.is_int:
            # Out of range there is no right answer: keep to values that every integer type holds.
            low, high = self.spread(Const(0.0, source)), self.spread(Const(100.0, source))
            inside = Binary("and", Binary(">", a, low, bool_), Binary("<", a, high, bool_), bool_)
            a = Select(inside, a, low, source)
        return Cast(a, dtype)

    def boolean(self, depth: int) -> Expr:
        if depth <= 0:
            return self.leaf(bool_)
        pick, d = self.r.random(), depth - 1
        if pick < 0.5:
            t = self.r.choice(self.dtypes)
            return Binary(self.r.choice(COMPARISONS), self.expr(t, d), self.expr(t, d), bool_)
        if pick < 0.6:
            return Unary("not", self.boolean(d), bool_)
        floats = [t for t in self.dtypes if t.is_float and t.name not in NARROW]
        if pick < 0.7 and floats:
            return Call(self.r.choice(["isnan", "isinf"]), (self.expr(self.r.choice(floats), d),), bool_)
        if pick < 0.8:
            return Cast(self.expr(self.r.choice(self.dtypes), d), bool_)
        return Binary(self.r.choice(["and", "or", "&", "|", "^"]), self.boolean(d), self.boolean(d), bool_)


def buffers(dtypes: tuple[DType, ...]) -> list[Buffer]:
    n = (const_int(LENGTH),)
    return [Buffer(f"{p}_{t.name}", t, n, "param", False) for t in dict.fromkeys((bool_, *dtypes)) for p in "xy"]


def expression_function(
    seed: int, lanes: int, count: int = 8, depth: int = 3, dtypes: tuple[DType, ...] = ALL
) -> Function:
    """`out_k[i] = random expression`, for `count` outputs."""
    r = random.Random(seed)
    stores: list[Stmt] = []
    outs = []
    for k in range(count):
        dtype = r.choice(dtypes)
        maker = ExprMaker(r.randrange(1 << 30), lanes, dtypes)
        outs.append(Buffer(f"out_{k}", dtype, (const_int(LENGTH),), "param"))
        index: Expr = Var("i") if lanes == 1 else Ramp(Var("i"), 1, lanes, i64)
        stores.append(Store(f"out_{k}", (index,), maker.expr(dtype, depth)))
    loop = For("i", const_int(0), const_int(LENGTH), lanes, Block(tuple(stores)))
    return Function(f"f{seed}", (*buffers(dtypes), *outs), (), loop)


def random_arrays(fn: Function, seed: int, params: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Inputs with special values mixed in; outputs poisoned."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for b in fn.buffers:
        shape = tuple(evaluate(e, params or {}) for e in b.shape)
        arrays[b.name] = np.asarray(random_array(rng, b.dtype, shape))
    return arrays


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == bool_:
        return rng.random(shape) < 0.5
    if dtype.is_int:
        info = np.iinfo(dtype.np)
        small = rng.integers(max(info.min, -20), min(info.max, 40), shape, dtype.np)
        edge = rng.choice(np.array([info.min, info.max, 0, 1, info.max - 1], dtype.np), shape)
        return np.where(rng.random(shape) < 0.2, edge, small)
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    special = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-41, 6e-8, 65504.0]), shape)
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.15, special, values).astype(dtype.np)


def call_native(
    address: int, fn: Function, arrays: dict[str, np.ndarray], params: dict[str, int], threads: int = 1
) -> None:
    pointers = (ctypes.c_void_p * max(1, len(fn.buffers)))(*[arrays[b.name].ctypes.data for b in fn.buffers])
    sizes = (ctypes.c_int64 * max(1, len(fn.params)))(*[params[p] for p in fn.params])
    NATIVE(address)(pointers, sizes, threadpool.handle(threads) or None)


def run_llvm(
    fn: Function, arrays: dict[str, np.ndarray], params: dict[str, int] | None = None, threads: int = 1
) -> None:
    target = targets.host()
    library = jit.Library([jit.build_object(to_llvm(fn, target), target)], [fn.name])
    call_native(library.address(fn.name), fn, arrays, params or {}, threads)


def run_c(fn: Function, arrays: dict[str, np.ndarray], params: dict[str, int] | None = None, threads: int = 1) -> None:
    library = cc.load_shared(cc.build_shared(to_c(fn, targets.host())))
    address = ctypes.cast(getattr(library, fn.name), ctypes.c_void_p).value
    assert address
    call_native(address, fn, arrays, params or {}, threads)


def run_interp(fn: Function, arrays: dict[str, np.ndarray], params: dict[str, int] | None = None) -> None:
    with np.errstate(all="ignore"):
        interp.run(fn, arrays, params or {})


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit by bit, but one NaN is as good as another."""
    if a.dtype.kind in "fV" or a.dtype.name == "bfloat16":
        nan = np.isnan(a) & np.isnan(b)
        bits = np.dtype(f"u{a.dtype.itemsize}")
        return bool((nan | (a.view(bits) == b.view(bits))).all())
    return bool((a == b).all())


def assert_same(fn: Function, expected: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
    for b in fn.buffers:
        if not same_bits(expected[b.name], got[b.name]):
            left, right = expected[b.name], got[b.name]
            bad = [i for i in np.ndindex(left.shape) if not same_bits(np.atleast_1d(left[i]), np.atleast_1d(right[i]))]
            raise AssertionError(f"{b.name}{list(bad[0])}: {expected[b.name][bad[0]]!r} != {got[b.name][bad[0]]!r}")


def copy(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {k: v.copy() for k, v in arrays.items()}
