"""LLVM text to code: linking several objects, imports, errors; what the emitted text looks like."""

import ctypes

import hand_ir
import numpy as np
import pytest
import random_ir

from polyc.emit import targets
from polyc.emit.llvm import jit
from polyc.emit.llvm.ir import to_llvm
from polyc.emit.loop_ir.loops import Alloc, Buffer, Function, Store
from polyc.poly.dtypes import f32
from polyc.poly.errors import BuildError
from polyc.poly.expr import Call, Load, const_int

HOST = targets.host()


def test_many_objects_in_one_library() -> None:
    names = ["saxpy", "matmul", "masked"]
    images = [jit.build_object(to_llvm(hand_ir.ALL[n](), HOST), HOST) for n in names]
    library = jit.Library(images, names)
    assert len({library.address(n) for n in names}) == 3
    fn = hand_ir.matmul()
    arrays = random_ir.random_arrays(fn, 1)
    expected = random_ir.copy(arrays)
    random_ir.run_interp(fn, expected)
    random_ir.call_native(library.address("matmul"), fn, arrays, {})
    random_ir.assert_same(fn, expected, arrays)


def test_imports_come_before_the_process() -> None:
    text = "declare i32 @answer()\ndefine i32 @ask() {\n %r = call i32 @answer()\n ret i32 %r\n}\n"
    answer = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 42)
    address = ctypes.cast(answer, ctypes.c_void_p).value
    image = jit.build_object(text, HOST)
    library = jit.Library([image], ["ask"], {"answer": address or 0})
    assert ctypes.CFUNCTYPE(ctypes.c_int)(library.address("ask"))() == 42
    with pytest.raises(BuildError, match="cannot link compiled code"):
        jit.Library([image], ["ask"])


def test_errors_are_one_line() -> None:
    with pytest.raises(BuildError, match="invalid LLVM IR") as caught:
        jit.build_object("define void @f() { ret i32 0 }", HOST)
    assert "\n" not in str(caught.value)
    with pytest.raises(BuildError, match="cannot link compiled code"):
        jit.Library([b"this is no object file"], ["f"])
    with pytest.raises(BuildError, match="cannot link compiled code"):
        jit.Library([jit.build_object("define void @f() { ret void }", HOST)], ["g"])


def test_text_is_deterministic() -> None:
    for make in hand_ir.ALL.values():
        assert to_llvm(make(), HOST) == to_llvm(make(), HOST)


def test_read_only_arguments_and_hidden_functions() -> None:
    text = to_llvm(hand_ir.saxpy(), HOST)
    assert "ptr noalias nocapture readonly align 4 %X" in text and "ptr noalias nocapture align 4 %Y" in text
    assert text.count("\ndefine void @saxpy(") == 1 and "define internal void @saxpy.body(" in text
    assert "align 64" not in text  # arguments come from NumPy: aligned to their elements only


def test_vector_loops_are_left_alone_and_scalar_loops_are_not() -> None:
    text = to_llvm(hand_ir.saxpy(), HOST)
    latches = [line for line in text.splitlines() if "label %i.head" in line or "label %j.head" in line]
    assert [("!llvm.loop" in line) for line in latches if "i.head" in line] == [False, True]
    assert not any("!llvm.loop" in line for line in latches if "j.head" in line)


def test_register_buffers_become_registers() -> None:
    text = str(jit.optimise(to_llvm(hand_ir.matmul(), HOST), HOST))
    assert "alloca" not in text and "@llvm.fma.v8f32" in text


def test_stack_and_heap() -> None:
    def scratch(size: int) -> str:
        b = Buffer("S", f32, (const_int(size),), "local")
        store = Store("Y", (), Load("S", (const_int(0),), f32))
        fill = Store("S", (const_int(0),), hand_ir.num(1.0))
        from polyc.emit.loop_ir.loops import Block

        body = Alloc(b, Block((fill, store)))
        return to_llvm(Function("s", (hand_ir.param("Y", f32, writable=True),), (), body), HOST)

    assert "alloca [256 x float]" in scratch(256) and "aligned_alloc" not in scratch(256)
    assert "alloca" not in scratch(1 << 20) and "@aligned_alloc(i64 64" in scratch(1 << 20)


def test_what_has_no_form_is_refused() -> None:
    y = hand_ir.param("Y", f32, 4, writable=True)
    for body, message in (
        (hand_ir.loop("i", 0, 4, Store("Y", (hand_ir.I,), hand_ir.num(0.0)), kind="vector"), "'vector' loop i"),
        (Store("Y", (const_int(0),), Call("exp", (hand_ir.num(1.0),), f32)), "'exp' must be expanded"),
        (Store("Z", (const_int(0),), hand_ir.num(0.0)), "unknown buffer 'Z'"),
        (Store("Y", (hand_ir.J,), hand_ir.num(0.0)), "unbound variable 'j'"),
    ):
        with pytest.raises(BuildError, match=message):
            to_llvm(Function("f", (y,), (), body), HOST)


def test_names_that_llvm_text_uses_itself() -> None:
    words = ["entry", "start", "buffers", "params", "runtime", "context", "from", "to", "t", "p"]
    buffers = tuple(hand_ir.param(w, f32, 4, writable=True) for w in words)
    body = hand_ir.loop("i", 0, 4, Store("entry", (hand_ir.I,), hand_ir.add(
        Load("runtime", (hand_ir.I,), f32), Load("t", (hand_ir.I,), f32))), kind="parallel")  # fmt: skip
    fn = Function("define", buffers, (), body)
    arrays = random_ir.random_arrays(fn, 2)
    expected = random_ir.copy(arrays)
    random_ir.run_interp(fn, expected)
    random_ir.run_llvm(fn, arrays, threads=2)
    random_ir.assert_same(fn, expected, arrays)


def test_parallel_loops_on_the_pool() -> None:
    fn = hand_ir.parallel()
    for n in (1, 2, 50):
        arrays = random_ir.random_arrays(fn, n, {"N": n})
        expected = random_ir.copy(arrays)
        random_ir.run_interp(fn, expected, {"N": n})
        random_ir.run_llvm(fn, arrays, {"N": n}, threads=3)
        random_ir.assert_same(fn, expected, arrays)
    assert not np.isnan(arrays["Y"][1, :7]).all()
