"""Hand-written loop-IR functions that together use every statement and access form."""

from __future__ import annotations

from polyc.emit.loop_ir.loops import (
    Alloc,
    Block,
    Broadcast,
    Buffer,
    For,
    Function,
    HReduce,
    If,
    Let,
    Ramp,
    Stmt,
    Store,
    VLoad,
)
from polyc.poly.dtypes import DType, bool_, f32, f64, i32, i64
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var, compare, const_int

N = Var("N")
I, J, K = Var("i"), Var("j"), Var("k")


def num(x: float, dtype: DType = f32) -> Const:
    return Const(x, dtype)


def splat(x: Expr, lanes: int) -> Broadcast:
    return Broadcast(x, lanes, x.dtype)


def ramp(base: Expr, lanes: int, stride: int = 1) -> Ramp:
    return Ramp(base, stride, lanes, i64)


def add(a: Expr, b: Expr) -> Expr:
    return Binary("+", a, b, a.dtype)


def mul(a: Expr, b: Expr) -> Expr:
    return Binary("*", a, b, a.dtype)


def whole(n: Expr, lanes: int) -> Expr:
    """n rounded down to full vectors."""
    return mul(Binary("//", n, const_int(lanes), i64), const_int(lanes))


def loop(var: str, lo: Expr | int, hi: Expr | int, body: Stmt, step: int = 1, kind: str = "serial") -> For:
    low = const_int(lo) if isinstance(lo, int) else lo
    high = const_int(hi) if isinstance(hi, int) else hi
    return For(var, low, high, step, body, kind)


def param(name: str, dtype: DType, *shape: Expr | int, writable: bool = False) -> Buffer:
    return Buffer(name, dtype, tuple(const_int(n) if isinstance(n, int) else n for n in shape), "param", writable)


def saxpy(lanes: int = 8, kind: str = "serial") -> Function:
    """Y += a X, vectorised, with a scalar tail."""
    at = (ramp(I, lanes),)
    body = Call("fma", (splat(Load("a", (), f32), lanes), VLoad("X", at, None, lanes, f32),
                        VLoad("Y", at, None, lanes, f32)), f32)  # fmt: skip
    tail = Call("fma", (Load("a", (), f32), Load("X", (J,), f32), Load("Y", (J,), f32)), f32)
    return Function(
        "saxpy",
        (param("a", f32), param("X", f32, N), param("Y", f32, N, writable=True)),
        ("N",),
        Block((
            loop("i", 0, whole(N, lanes), Store("Y", at, body), lanes, kind),
            loop("j", whole(N, lanes), N, Store("Y", (J,), tail)),
        )),
    )  # fmt: skip


def matmul(m: int = 12, n: int = 16, k: int = 20) -> Function:
    """C = A B with a 3 x 16 register tile in a register buffer."""
    rows, lanes = 3, 8
    tile = Buffer("T", f32, (const_int(rows), const_int(n)), "register")

    def part(r: int, v: int) -> tuple[Expr, Expr]:
        return (const_int(r), ramp(const_int(v * lanes), lanes))

    cells = [(r, v) for r in range(rows) for v in range(n // lanes)]
    zero = Block(tuple(Store("T", part(r, v), splat(num(0.0), lanes)) for r, v in cells))
    update = Block(tuple(
        Store("T", part(r, v), Call("fma", (
            splat(Load("A", (add(I, const_int(r)), K), f32), lanes),
            VLoad("B", (K, ramp(const_int(v * lanes), lanes)), None, lanes, f32),
            VLoad("T", part(r, v), None, lanes, f32)), f32), reduction="+")
        for r, v in cells
    ))  # fmt: skip
    write = Block(tuple(
        Store("C", (add(I, const_int(r)), ramp(const_int(v * lanes), lanes)), VLoad("T", part(r, v), None, lanes, f32))
        for r, v in cells
    ))  # fmt: skip
    body = loop("i", 0, m, Alloc(tile, Block((zero, loop("k", 0, k, update), write))), rows)
    return Function(
        "matmul", (param("A", f32, m, k), param("B", f32, k, n), param("C", f32, m, n, writable=True)), (), body
    )


def masked(lanes: int = 8) -> Function:
    """Tails by masks: loads, stores, gathers and scatters; out-of-range lanes are masked off."""
    here = ramp(I, lanes)
    mask = compare("<", here, splat(N, lanes))
    twice = ramp(mul(I, const_int(2)), lanes, 2)
    back = ramp(Binary("-", add(N, const_int(-1)), I, i64), lanes, -1)
    value = mul(VLoad("X", (here,), mask, lanes, f32), splat(num(3.0), lanes))
    stores = (
        Store("Y", (here,), value, mask),
        Store("Z", (twice,), VLoad("X", (back,), mask, lanes, f32), mask),
        Store("R", (back,), VLoad("Z", (twice,), mask, lanes, f32), mask),
        Store("F", (here,), compare(">", VLoad("X", (here,), mask, lanes, f32), splat(num(0.0), lanes)), mask),
        Store("G", (VLoad("P", (here,), mask, lanes, i64),), VLoad("F", (here,), mask, lanes, bool_), mask),
    )
    two_n = mul(N, const_int(2))
    buffers = (
        param("X", f32, N), param("P", i64, N), param("Y", f32, N, writable=True),
        param("Z", f32, two_n, writable=True), param("R", f32, N, writable=True),
        param("F", bool_, N, writable=True), param("G", bool_, N, writable=True),
    )  # fmt: skip
    return Function("masked", buffers, ("N",), loop("i", 0, N, Block(stores), lanes))


def columns(lanes: int = 4) -> Function:
    """Vectors along an outer dimension (strided by a symbolic size), reversed runs, transposes."""
    rows = ramp(I, lanes)
    swap = Store("T", (J, rows), VLoad("A", (rows, J), None, lanes, f64))
    turned = Store("U", (rows, J), VLoad("T", (J, ramp(add(const_int(7), Unary("neg", I, i64)), lanes, -1)),
                                         None, lanes, f64))  # fmt: skip
    nest = loop("i", 0, 8, loop("j", 0, N, Block((swap, turned))), lanes)
    p, q = Var("p"), Var("q")
    copy = Store("T", (q, ramp(p, lanes)), VLoad("A", (ramp(p, lanes), q), None, lanes, f64))
    first = loop("p", 0, 8, loop("q", 0, N, copy), lanes)
    return Function(
        "columns",
        (param("A", f64, 8, N), param("T", f64, N, 8, writable=True), param("U", f64, 8, N, writable=True)),
        ("N",),
        Block((first, nest)),
    )


def reductions(lanes: int = 8) -> Function:
    """HReduce of every operator, through a local accumulator."""
    stores: list[Stmt] = []
    buffers = [param("X", f32, N), param("P", i32, N), param("B", bool_, N)]
    for k, op in enumerate(["+", "*", "min", "max"]):
        stores.append(Store(f"f{k}", (), HReduce(op, VLoad("X", (ramp(I, lanes),), None, lanes, f32), f32)))
        buffers.append(param(f"f{k}", f32, writable=True))
    for k, op in enumerate(["+", "*", "min", "max", "&", "|", "^"]):
        stores.append(Store(f"i{k}", (), HReduce(op, VLoad("P", (ramp(I, lanes),), None, lanes, i32), i32)))
        buffers.append(param(f"i{k}", i32, writable=True))
    for k, op in enumerate(["and", "or"]):
        stores.append(Store(f"b{k}", (), HReduce(op, VLoad("B", (ramp(I, lanes),), None, lanes, bool_), bool_)))
        buffers.append(param(f"b{k}", bool_, writable=True))
    return Function("reductions", tuple(buffers), ("N",), loop("i", 0, whole(N, lanes), Block(tuple(stores)), lanes))


def lazy() -> Function:
    """Selects and `and`s whose untaken arm would leave the array by far."""
    far = Load("X", (mul(I, const_int(1 << 40)),), f32)
    inside = compare("<", I, const_int(1))
    guarded = Binary("and", inside, compare(">", far, num(0.0)), bool_)
    either = Binary("or", compare(">=", I, const_int(1)), compare(">", far, num(0.0)), bool_)
    return Function(
        "lazy",
        (param("X", f32, N), param("Y", f32, N, writable=True), param("B", bool_, N, 2, writable=True)),
        ("N",),
        loop("i", 0, N, Block((
            Store("Y", (I,), Select(inside, far, num(5.0), f32)),
            Store("B", (I, const_int(0)), guarded),
            Store("B", (I, const_int(1)), either),
        ))),
    )  # fmt: skip


def lazy_vectors() -> Function:
    """Vector Selects whose unwanted lanes would leave the array."""
    here = ramp(mul(J, const_int(4)), 4)
    vcond = compare("<", here, splat(N, 4))
    vector = Select(vcond, VLoad("X", (here,), None, 4, f32), splat(num(-1.0), 4), f32)
    line = Select(compare("<", splat(J, 4), splat(const_int(1), 4)),
                  splat(Load("X", (mul(J, const_int(1 << 40)),), f32), 4), splat(num(2.0), 4), f32)  # fmt: skip
    return Function(
        "lazy_vectors",
        (param("X", f32, N), param("V", f32, 400, writable=True), param("W", f32, 400, writable=True)),
        ("N",),
        loop("j", 0, 100, Block((Store("V", (here,), vector), Store("W", (here,), line)))),
    )


def control() -> Function:
    """If/else, Let (scalar and vector), Allocs on stack and heap, steps, empty loops."""
    small = Buffer("S", i32, (const_int(8),), "local")
    large = Buffer("L", f64, (N, const_int(3)), "heap")
    square = Load("S", (Binary("%", Var("i2"), const_int(8), i64),), i32)
    body = Block((
        loop("i", 0, 8, Store("S", (I,), Cast(mul(I, I), i32))),
        loop("i2", 0, N, Block((
            If(compare("==", Binary("%", Var("i2"), const_int(3), i64), const_int(0)),
               Store("L", (Var("i2"), const_int(0)), Cast(square, f64)),
               Store("L", (Var("i2"), const_int(0)), num(0.5, f64))),
            Store("L", (Var("i2"), const_int(1)), num(2.0, f64)),
            Let("twice", mul(Load("L", (Var("i2"), const_int(0)), f64), num(2.0, f64)),
                Store("L", (Var("i2"), const_int(2)), Var("twice", f64))),
        ))),
        loop("i3", 1, N, Let("acc", Load("L", (Var("i3"), const_int(2)), f64),
             If(compare(">", Var("acc", f64), num(1.5, f64)), Store("Y", (Var("i3"),), Var("acc", f64)))), 2),
        loop("i4", 5, 3, Store("Y", (const_int(0),), num(99.0, f64))),
    ))  # fmt: skip
    return Function("control", (param("Y", f64, N, writable=True),), ("N",), Alloc(small, Alloc(large, body)))


def parallel() -> Function:
    """A parallel loop with step, captured scalars, vectors and buffers, a nested one, local memory."""
    scratch = Buffer("S", f32, (const_int(8),), "local")
    first = ramp(const_int(0), 8)
    row = Store("S", (first,), add(VLoad("X", (I, first), None, 8, f32), Var("v", f32, 8)))
    out = loop("j", 0, 8, Store("Y", (I, J), add(Load("S", (J,), f32), Var("s", f32))), kind="parallel")
    nest = loop("i", 1, N, Alloc(scratch, Block((row, out))), 3, kind="parallel")
    total = Buffer("T", f32, (N,), "heap")
    fill = loop("m", 0, N, Store("T", (Var("m"),), Cast(Var("m"), f32)), kind="parallel")
    last = loop("q", 0, N, Store("Y", (Var("q"), const_int(7)), Load("T", (Var("q"),), f32)), kind="parallel")
    body = Let("s", Load("a", (), f32), Let("v", splat(mul(Var("s", f32), num(2.0)), 8), nest))
    return Function(
        "parallel",
        (param("a", f32), param("X", f32, N, 8), param("Y", f32, N, 8, writable=True)),
        ("N",),
        Alloc(total, Block((fill, body, last))),
    )


def strides() -> Function:
    """Unmasked runs of stride -2 to 5, constant and symbolic, read and written."""
    stores: list[Stmt] = []
    buffers = [param("X", f32, 48), param("H", i32, 48)]
    for s in (-2, -1, 1, 2, 3, 4, 5):
        start = const_int(0 if s > 0 else 7 * -s)
        at, flat = ramp(add(start, I), 8, s), ramp(mul(I, const_int(8)), 8)
        for array, dtype in (("X", f32), ("H", i32)):
            out = f"r{dtype.name}_{s + 2}"
            buffers.append(param(out, dtype, 104, writable=True))
            stores.append(Store(out, (flat,), VLoad(array, (at,), None, 8, dtype)))
        buffers.append(param(f"w{s + 2}", f32, 48, writable=True))
        stores.append(Store(f"w{s + 2}", (at,), VLoad("X", (ramp(I, 8),), None, 8, f32)))
    return Function("strides", tuple(buffers), (), loop("i", 0, 13, Block(tuple(stores))))


def dynamic() -> Function:
    """Loop bounds, subscripts and conditions that read memory which earlier statements changed."""
    first, second = Load("P", (const_int(0),), i64), Load("P", (const_int(1),), i64)
    body = Block((
        Store("P", (const_int(0),), const_int(1)),
        loop("i", first, second, Store("Y", (I,), Cast(I, f32))),
        Store("P", (const_int(1),), const_int(3)),
        Store("P", (const_int(0),), const_int(2)),
        loop("j", first, second, Store("Y", (add(J, const_int(4)),), Load("X", (first,), f32))),
        If(compare("<", first, second), Store("P", (const_int(0),), second)),
        Store("Y", (first,), Load("X", (Load("P", (Load("P", (const_int(4),), i64),), i64),), f32)),
        Store("P", (const_int(4),), const_int(1)),
        Store("Y", (const_int(0),), Load("X", (Load("P", (Load("P", (const_int(4),), i64),), i64),), f32)),
    ))  # fmt: skip
    setup = [Store("P", (const_int(k),), const_int(v)) for k, v in enumerate((0, 4, 2, 1, 0))]
    buffers = (param("X", f32, 8), param("Y", f32, 8, writable=True), param("P", i64, 5, writable=True))
    return Function("dynamic", buffers, (), Block((*setup, body)))


ALL = {
    "saxpy": saxpy, "matmul": matmul, "masked": masked, "columns": columns, "reductions": reductions,
    "lazy": lazy, "control": control, "parallel": parallel, "strides": strides, "dynamic": dynamic,
}  # fmt: skip
