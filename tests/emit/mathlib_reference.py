"""Vectorised NumPy evaluation of loop-IR expressions."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from polyc.emit.loop_ir.loops import Broadcast, Let, Stmt, Store
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var

Env = dict[str, Any]

_FMA = """
define void @fma_{n}({t}* %a, {t}* %b, {t}* %c, {t}* %o, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %pa = getelementptr {t}, {t}* %a, i64 %i
  %pb = getelementptr {t}, {t}* %b, i64 %i
  %pc = getelementptr {t}, {t}* %c, i64 %i
  %po = getelementptr {t}, {t}* %o, i64 %i
  %va = load {t}, {t}* %pa
  %vb = load {t}, {t}* %pb
  %vc = load {t}, {t}* %pc
  %r = call {t} @llvm.fma.{n}({t} %va, {t} %vb, {t} %vc)
  store {t} %r, {t}* %po
  %j = add i64 %i, 1
  %done = icmp sge i64 %j, %n
  br i1 %done, label %end, label %loop
end:
  ret void
}}
declare {t} @llvm.fma.{n}({t}, {t}, {t})
"""


@cache
def _fma_engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = _FMA.format(t="float", n="f32") + _FMA.format(t="double", n="f64")
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, cpu=llvm.get_host_cpu_name())
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def fma(a: Any, b: Any, c: Any) -> np.ndarray:
    """Exact fused multiply-add on arrays (one machine instruction, or libm's)."""
    a, b, c = (np.ascontiguousarray(v) for v in np.broadcast_arrays(a, b, c))
    out = np.empty_like(a)
    name = {"float32": "fma_f32", "float64": "fma_f64"}[a.dtype.name]
    p = ctypes.c_void_p
    fn = ctypes.CFUNCTYPE(None, p, p, p, p, ctypes.c_int64)(_fma_engine().get_function_address(name))
    fn(a.ctypes.data, b.ctypes.data, c.ctypes.data, out.ctypes.data, a.size)
    return out


_BINARY = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "&": np.bitwise_and, "|": np.bitwise_or,
    "^": np.bitwise_xor, "<<": np.left_shift, ">>": np.right_shift, "and": np.logical_and, "or": np.logical_or,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "min": lambda a, b: np.where(b < a, b, a), "max": lambda a, b: np.where(b > a, b, a),
}  # fmt: skip
_CALL = {
    "fma": fma, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "abs": np.abs,
    "sqrt": np.sqrt, "isnan": np.isnan, "isinf": np.isinf,
}  # fmt: skip


def evaluate(e: Expr, env: Env) -> Any:
    """`e` on arrays; variables come from `env`. Types must fit exactly: nothing is promoted."""
    if isinstance(e, Const):
        return e.dtype.np.type(e.value)
    if isinstance(e, Var):
        return env[e.name]
    args = [evaluate(c, env) for c in e.children()]
    if isinstance(e, Broadcast):
        return args[0]
    if isinstance(e, Cast):
        return np.asarray(args[0]).astype(e.dtype.np)
    if isinstance(e, Select):
        assert args[1].dtype == args[2].dtype == e.dtype.np
        return np.where(*args)
    if isinstance(e, Unary):
        return {"neg": np.negative, "not": np.logical_not, "~": np.invert}[e.op](args[0])
    if isinstance(e, Call) and e.fn == "bitcast":
        return np.asarray(args[0]).view(e.dtype.np)
    assert len({a.dtype for a in args}) == 1, [a.dtype for a in args]
    result = _BINARY[e.op](*args) if isinstance(e, Binary) else _CALL[e.fn](*args)
    assert result.dtype == e.dtype.np
    return result


def run(s: Stmt, env: Env) -> Any:
    """The value stored by a Store under Lets."""
    with np.errstate(all="ignore"):
        while isinstance(s, Let):
            env = env | {s.name: evaluate(s.value, env)}
            s = s.body
        assert isinstance(s, Store)
        return evaluate(s.value, env)
