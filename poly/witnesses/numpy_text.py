"""Expressions of a Scop as NumPy scalar code, for scripts that people read and run."""

from __future__ import annotations

from polyc.poly.dtypes import DType
from polyc.poly.expr import Binary, Call, Cast, Const, Expr, Load, Select, StraightLine, Temp, Unary, Var, loads
from polyc.poly.text import LEVEL

_CALLS = {
    **{f: f"np.{f}" for f in "exp log log1p expm1 sqrt sin cos tan sinh cosh tanh".split()},
    **{f: f"np.{f}" for f in "floor ceil trunc abs isnan isinf".split()},
    "asin": "np.arcsin", "acos": "np.arccos", "atan": "np.arctan", "round": "np.rint", "pow": "np.power",
    "erf": "math.erf",
}  # fmt: skip


def dtype_text(dtype: DType) -> str:
    """`np.float32`; bfloat16, which NumPy lacks, becomes float32."""
    if dtype.kind == "bool":
        return "np.bool_"
    return "np.float32" if dtype.name == "bf16" else f"np.{dtype.np.name}"


def numpy_text(e: Expr, level: int = 0) -> str:
    """`e` as Python over NumPy scalars; arrays and iterators stand under their own names."""
    if isinstance(e, Const):
        return _const(e, level)
    if isinstance(e, (Var, Temp)):
        return e.name
    if isinstance(e, StraightLine):
        steps = (f"{name} := {numpy_text(value)}" for name, value in zip(e.names, e.values, strict=True))
        return f"({', '.join((*steps, numpy_text(e.result)))})[-1]"
    if isinstance(e, Load):
        return f"{e.array}[{', '.join(numpy_text(i) for i in e.index) or '()'}]"
    if isinstance(e, Cast):
        return f"np.asarray({numpy_text(e.a)}).astype({dtype_text(e.dtype)})[()]"
    if isinstance(e, Call):
        return _call(e)
    if isinstance(e, Select):
        text = f"{numpy_text(e.a, 1)} if {numpy_text(e.cond, 1)} else {numpy_text(e.b, 1)}"
        return f"({text})" if level > 0 else text
    if isinstance(e, Unary):
        text = {"neg": "-", "not": "not ", "~": "~"}[e.op] + numpy_text(e.a, LEVEL[e.op])
        return f"({text})" if level > LEVEL[e.op] else text
    assert isinstance(e, Binary)
    if e.op in ("min", "max"):
        return f"{e.op}({numpy_text(e.a)}, {numpy_text(e.b)})"
    own = LEVEL[e.op]
    strict = own + 1 if own == 4 or e.op == "**" else own  # comparisons would chain, ** binds to the right
    text = f"{numpy_text(e.a, strict)} {e.op} {numpy_text(e.b, own + 1)}"
    return f"({text})" if level > own else text


def _const(e: Const, level: int) -> str:
    if isinstance(e.value, float) and (e.value != e.value or abs(e.value) == float("inf")):
        text = f"float('{e.value}')"
    elif isinstance(e.value, bool) or isinstance(e.value, float) or e.dtype.bits == 64:
        text = repr(e.value)
    else:
        text = f"{dtype_text(e.dtype)}({e.value})"
    return f"({text})" if text.startswith("-") and level > LEVEL["neg"] else text


def _call(e: Call) -> str:
    args = [numpy_text(a) for a in e.args]
    if e.fn == "position":
        return f"max(min({args[0]}, {args[1]} - 1), 0)"
    if e.fn == "fma":
        a, b, c = (numpy_text(x, LEVEL["*"] + 1) for x in e.args)
        return f"({a} * {b} + {c})"
    if e.fn == "sigmoid":
        return f"(1.0 / (1.0 + np.exp(-({args[0]}))))"
    if e.fn == "dot_pairs":
        x, y = args
        return f"(({x} << 16 >> 16) * ({y} << 16 >> 16) + ({x} >> 16) * ({y} >> 16))"
    if e.fn in ("dot_bytes", "dot_bytes_add"):
        x, y, *added = args
        products = (f"({x} >> {s} & 255) * ({y} << {24 - s} >> 24)" for s in (0, 8, 16, 24))
        return f"({' + '.join([*added, *products])})"
    if e.fn == "dot_bf16":
        (a, b), (c, d) = (
            (f"({t}.view('u4') << 16).view('f4')", f"({t}.view('u4') & 0xFFFF0000).view('f4')") for t in args
        )
        return f"({a} * {c} + {b} * {d})"
    if e.fn == "pack_bf16":
        return f"({args[0]}.view('u4') >> 16 | {args[1]}.view('u4') & 0xFFFF0000).view('f4')"
    if e.fn == "widen_pairs":
        return f"(({args[0]} << 24 >> 24) & 65535 | ({args[0]} << 16 >> 24) << 16)"
    if e.fn == "rsqrt":
        return f"(1.0 / np.sqrt({args[0]}))"
    return f"{_CALLS[e.fn]}({', '.join(args)})"


def tag_text(e: Expr) -> str:
    """Everything that `e` reads, as nested tuples: what a symbolic value of `e` is made from."""
    if isinstance(e, (Const, Var, Load, Temp)):
        return numpy_text(e)
    if isinstance(e, StraightLine):
        steps = (f"{name} := make_tag({tag_text(value)})" for name, value in zip(e.names, e.values, strict=True))
        return f"({', '.join((*steps, tag_text(e.result)))})[-1]"
    if isinstance(e, Select):
        return f"({tag_text(e.a)} if {coin_text(e.cond)} else {tag_text(e.b)})"
    if isinstance(e, Binary) and (e.op in ("and", "or") or e.dtype.kind == "bool"):
        return coin_text(e)
    parts = [tag_text(c) for c in e.children()]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def coin_text(e: Expr) -> str:
    """A condition over tags: what compares values read from memory is decided by a tag's last bit."""
    if isinstance(e, Binary) and e.op in ("and", "or"):
        return f"({coin_text(e.a)} {e.op} {coin_text(e.b)})"
    if isinstance(e, Unary) and e.op == "not":
        return f"(not {coin_text(e.a)})"
    if isinstance(e, (Load, Temp)):
        return f"({numpy_text(e)} % 2 == 1)"
    if not any(True for _ in loads(e)):
        return numpy_text(e, 1)
    parts = ", ".join(tag_text(c) for c in e.children())
    return f"(make_tag({parts}) % 2 == 1)"
