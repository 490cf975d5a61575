"""Products of a warpgroup (wgmma): rules, interpreter, CUDA text with descriptors, machine code of sm_90a.

No strategy makes them yet: the product here is written by hand in the loop IR.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sass
import simt
from hand_launches import num, without_barrier
from sass import needs_disassembler
from texts import needs_nvidia, needs_shim

from polyc.emit.gpu import targets
from polyc.emit.gpu.devices.nvidia import compile_cubin
from polyc.emit.gpu.devices.shim import run_on_shim
from polyc.emit.gpu.text.source import to_gpu
from polyc.emit.gpu.traffic import block_traffic
from polyc.emit.interpreter.launch import DataRace
from polyc.emit.loop_ir.loops import (
    Alloc,
    Barrier,
    Block,
    Buffer,
    For,
    Function,
    If,
    Launch,
    Stmt,
    Store,
    WarpgroupProduct,
    walk,
)
from polyc.emit.loop_ir.printer import to_text
from polyc.emit.loop_ir.rewrite import unique_names, with_bodies
from polyc.emit.loop_ir.verify import verify
from polyc.emit.passes.simplify import simplify
from polyc.emit.passes.unroll import unroll
from polyc.poly.dtypes import BY_NAME, DType, bf16, f16, f32
from polyc.poly.errors import BuildError
from polyc.poly.expr import Binary, Const, Expr, Load, Var, const_int

M, N, K = Var("M"), Var("N"), Var("K")
STEPS = 2  # of 16 elements of the reduction in a panel
x, y, z, by, bx, k0 = (Var(v) for v in ("x", "y", "z", "by", "bx", "k0"))


def product(dtype: DType = f16, columns: int = 16) -> Function:
    """C = A B^T for M a multiple of 64, N one of `columns`, K one of 32; 64 x `columns` elements a block."""
    depth, zero = 16 * STEPS, const_int(0)
    thread = num("+", num("+", x, num("*", y, 4)), num("*", z, 32))

    def filled(panel: str, array: str, rows: int, first: Expr) -> Stmt:
        """All threads copy elements, in the order in which the array has them."""
        q = Var(f"q_{panel}")
        number = num("+", thread, num("*", q, 128))
        row, k = num("//", number, depth), num("%", number, depth)
        place = (num("//", row, 8), num("//", k, 8), num("%", row, 8), num("%", k, 8))
        element = Load(array, (num("+", first, row), num("+", k0, k)), dtype)
        return For(q.name, zero, const_int(rows * depth // 128), 1, Store(panel, place, element))

    def each(suffix: str, store: Stmt) -> Stmt:
        """For all elements of a thread."""
        for v, count in (("e", 2), ("h", 2), ("n", columns // 8)):
            store = For(v + suffix, zero, const_int(count), 1, store, "unroll")
        return store

    top, left = num("*", by, 64), num("*", bx, columns)
    multiplied = WarpgroupProduct(
        "acc", "As", (num("*", z, 2), zero, y, zero), "Bs", (zero, zero, num("*", x, 2), zero), columns, STEPS, dtype
    )
    panels = (filled("As", "A", 64, top), filled("Bs", "B", columns, left), Barrier(), multiplied, Barrier())
    first, last = ([Var(v + s) for v in "nhe"] for s in ("0", "1"))
    n, h, e = last
    row = num("+", num("+", num("+", top, num("*", z, 16)), num("*", h, 8)), y)
    column = num("+", num("+", num("+", left, num("*", n, 8)), num("*", x, 2)), e)
    body: Stmt = Block((
        each("0", Store("acc", tuple(first), Const(0.0, f32))),
        For("k0", zero, K, depth, Block(panels)),
        each("1", Store("C", (row, column), Load("acc", tuple(last), f32))),
    ))  # fmt: skip
    shapes = {"acc": (columns // 8, 2, 2), "Bs": (columns // 8, depth // 8, 8, 8), "As": (8, depth // 8, 8, 8)}
    for name, shape in shapes.items():
        space = "register" if name == "acc" else "shared"
        buffer = Buffer(name, f32 if name == "acc" else dtype, tuple(map(const_int, shape)), space)
        body = Alloc(buffer, body)
    grid = (("bx", num("//", N, columns)), ("by", num("//", M, 64)))
    launch = Launch("warpgroup_0", grid, (("x", 4), ("y", 8), ("z", 4)), body)
    arrays = (
        Buffer("A", dtype, (M, K), "param", False),
        Buffer("B", dtype, (N, K), "param", False),
        Buffer("C", f32, (M, N), "param"),
    )
    return simplify(unroll(unique_names(Function("warpgroup", arrays, ("M", "N", "K"), launch))))


SIZES = {"M": 128, "N": 32, "K": 64}


def arrays(dtype: DType = f16) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Small whole numbers, of which sums are exact in any order, and the product."""
    rng = np.random.default_rng()
    a, b = (rng.integers(-3, 4, (SIZES[d], SIZES["K"])).astype("f4") for d in "MN")
    c = np.full((SIZES["M"], SIZES["N"]), np.nan, "f4")
    return {"A": a.astype(dtype.np), "B": b.astype(dtype.np), "C": c}, a @ b.T


def test_the_interpreter_knows_them() -> None:
    fn = product()
    verify(fn, "the test")
    given, expected = arrays()
    simt.run(fn, given, SIZES, races=True)
    assert (given["C"] == expected).all()
    with pytest.raises(DataRace):
        simt.run(without_barrier(fn, 0), given, SIZES, races=True)


def test_what_they_read() -> None:
    fn = product()
    assert "acc += warpgroup_product_16x2(As[" in to_text(fn)
    (launch,) = (s for s in walk(fn.body) if isinstance(s, Launch))
    counted = block_traffic(fn, launch, SIZES)
    panels = 2 * (64 + 16) * SIZES["K"]
    assert counted.total("shared", "read") == counted.total("shared", "written") == panels


@needs_shim
@pytest.mark.parametrize(
    ("dtype", "check"), [(f16, "none"), pytest.param(bf16, "races", marks=pytest.mark.long)]
)  # fmt: skip
def test_text_and_descriptors(dtype: DType, check: str) -> None:
    given, expected = arrays(dtype)
    program = to_gpu(product(dtype), targets.get("sm_90a"))
    run_on_shim(program, given, SIZES, order="shuffled", check=check)
    assert (given["C"] == expected).all()


@needs_shim
def test_a_wrong_descriptor_is_seen() -> None:
    given, expected = arrays()
    program = to_gpu(product(), targets.get("sm_90a"))
    wrong = program.text.replace("(uint64_t)(matrices * 128 >> 4) << 32", "(uint64_t)(matrices * 64 >> 4) << 32")
    assert wrong != program.text
    run_on_shim(replace(program, text=wrong), given, SIZES)
    assert not (given["C"] == expected).all()


@needs_nvidia
@needs_disassembler
@pytest.mark.parametrize(("dtype", "columns"), [(f16, 64), (bf16, 128), (f16, 256)])
def test_machine_code(dtype: DType, columns: int, tmp_path: Path) -> None:
    target = targets.get("sm_90a")
    cubin = compile_cubin(to_gpu(product(dtype, columns), target), target)
    (used,) = cubin.resources
    assert used.spill_loads == used.spill_stores == 0
    (code,) = sass.kernels(cubin.image, tmp_path).values()
    found = [name + operands for name, operands in code if name.startswith("HGMMA")]
    assert len(found) == STEPS and all(text.startswith(f"HGMMA.64x{columns}x16.F32") for text in found)


def test_other_targets_refuse_them() -> None:
    for name in ("sm_80", "sm_90", "opencl"):
        with pytest.raises(BuildError, match=f"{name} multiplies nothing by warpgroups \\(wgmma\\): sm_90a does"):
            to_gpu(product(), targets.get(name))


def test_rules() -> None:
    fn = product()
    (good,) = (s for s in walk(fn.body) if isinstance(s, WarpgroupProduct))

    def broken(new: Stmt) -> Function:
        def visit(s: Stmt) -> Stmt:
            return new if s is good else with_bodies(s, tuple(visit(b) for b in s.bodies()))

        return replace(fn, body=visit(fn.body))

    rows, c, _, zero = good.left_index
    some = If(Binary("<", y, const_int(3), BY_NAME["bool_"]), good)
    for wrong, message in (
        (replace(good, left_index=(rows, c, x, zero)), "threads are wrongly placed in 'As'"),
        (replace(good, right_index=(zero, zero, num("+", num("*", x, 2), 1), zero)), "wrongly placed in 'Bs'"),
        (replace(good, left_index=(z, c, y, zero)), "threads are wrongly placed in 'As'"),
        (some, "under a condition on which threads may disagree"),
        (replace(good, dtype=f32), "not 8 x 8 matrices of f32"),
        (replace(good, columns=24), "not f32 \\(3, 2, 2\\) in registers"),
        (replace(good, columns=12), "of 12 columns"),
        (replace(good, steps=0), "in 0 steps"),
    ):
        with pytest.raises(BuildError, match=message):
            verify(broken(wrong), "the test")
    launch = next(s for s in walk(fn.body) if isinstance(s, Launch))
    with pytest.raises(BuildError, match="blocks are not 4 x 8 x 4 threads"):
        verify(replace(fn, body=replace(launch, threads=(("x", 4), ("y", 8), ("z", 8)))), "the test")
