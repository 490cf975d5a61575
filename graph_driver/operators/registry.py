"""Which function builds which ONNX operator, and the cache of library Scops.

What a builder asks of a node and the node is not, is `Unsupported`; `Halves` asks for the builder's loops in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import Any

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.operators.context import Builder, NodeContext, TensorInfo
from polyc.poly.scop import Scop
from polyc.poly.words import counted

_Builders = dict[tuple[str, str], Builder]
_LIBRARY: _Builders = {}
_OTHERS: _Builders = {}
ONNX_DOMAIN = ("", "ai.onnx")


def onnx_operator(*names: str, domain: str = "") -> Callable[[Builder], Builder]:
    """Register the decorated builder for the operators `names`.

    A builder from outside of this folder takes the place of the library's, whichever is registered first.
    """

    def register(builder: Builder) -> Builder:
        builders = _LIBRARY if builder.__module__.startswith(f"{__package__}.") else _OTHERS
        builders.update({_key(domain, name): builder for name in names})
        return builder

    return register


def _key(domain: str, op_type: str) -> tuple[str, str]:
    return "" if domain in ONNX_DOMAIN else domain, op_type


def registered(domain: str, op_type: str) -> Builder | None:
    """The builder of an operator, or None."""
    key = _key(domain, op_type)
    return _OTHERS.get(key) or _LIBRARY.get(key)


def others() -> bool:
    """Whether there are builders from outside of this folder."""
    return bool(_OTHERS)


def names() -> tuple[str, ...]:
    """All operators with a builder, sorted; those of other domains as `domain::name`."""
    return tuple(sorted(f"{d}::{n}" if d else n for d, n in {**_LIBRARY, **_OTHERS}))


class LoopsWanted(Exception):
    """A builder accepted its node and asked for the first loops, which the caller does not need."""


_only_asked = ContextVar("_only_asked", default=False)


def accepts(builder: Builder, ctx: NodeContext) -> bool:
    """Whether a builder makes loops of a node, without making them: it decides before it asks for the first.

    What else it raises than `Unsupported` passes for an answer, too: the translation of the graph's nodes reports it.
    """
    token = _only_asked.set(True)
    try:
        builder(ctx)
    except Unsupported:
        return False
    except Exception:
        return True
    finally:
        _only_asked.reset(token)
    return True


def scop_of(factory: Callable[..., Any], *args: Any) -> Scop:
    """The Scop of the operator that `factory(*args)` makes; nodes of equal form share it."""
    if _only_asked.get():
        raise LoopsWanted
    return _scop_of(factory, *args)


@lru_cache(
    maxsize=1024, typed=True
)  # more than the forms of nodes of one model; with all that is known of each, 0.1 MB
def _scop_of(factory: Callable[..., Any], *args: Any) -> Scop:
    scop: Scop = factory(*args).scop()
    return scop


# ---- reading a node --------------------------------------------------------------------------


def data(ctx: NodeContext, position: int) -> TensorInfo:
    """A required input. Raises `Unsupported` when it is absent."""
    found = optional(ctx, position)
    if found is None:
        raise Unsupported(f"{ctx.op_type} without input {position}")
    return found


def optional(ctx: NodeContext, position: int) -> TensorInfo | None:
    """An optional input, None when absent."""
    return ctx.inputs[position] if position < len(ctx.inputs) else None


def constant(ctx: NodeContext, position: int, what: str) -> Any:
    """The value of an input that must be known at compile time, None when absent."""
    info = optional(ctx, position)
    if info is None:
        return None
    if info.const is None:
        raise Unsupported(f"{ctx.op_type} with {what} known at run time only")
    return info.const


def sizes_of(ctx: NodeContext, position: int, what: str) -> tuple[Any, ...] | None:
    """The elements of an integer input that is constant or follows from symbolic sizes; None when absent."""
    info = optional(ctx, position)
    if info is not None and info.sizes is not None:
        return tuple(info.sizes.reshape(-1))
    found = constant(ctx, position, what)
    return None if found is None else integers(found)


def integers(value: Any) -> tuple[int, ...]:
    """A list attribute or a constant tensor as a tuple of ints."""
    return tuple(int(v) for v in (value.ravel() if hasattr(value, "ravel") else value))


def axis_of(ctx: NodeContext, rank: int, default: int, name: str = "axis") -> int:
    """An axis attribute in `0..rank-1`."""
    axis = int(ctx.attrs.get(name, default))
    return axis + rank if axis < 0 else axis


def product(shape: tuple[int, ...]) -> int:
    """Number of elements."""
    total = 1
    for extent in shape:
        total *= extent
    return total


def only_output(ctx: NodeContext) -> TensorInfo:
    """The single output. Raises `Unsupported` when the model uses further ones."""
    if len(ctx.outputs) != 1:
        raise Unsupported(f"{ctx.op_type} with {counted(len(ctx.outputs), 'output')}")
    return ctx.outputs[0]


def same_types(ctx: NodeContext) -> None:
    """Refuse inputs of different element types."""
    if len({i.dtype for i in ctx.inputs if i is not None}) > 1:
        raise Unsupported(f"{ctx.op_type} of mixed element types")


class Halves(Unsupported):
    """The builder takes f32 in the place of f16 and bf16: see `polyc.graph_driver.operators.halves`."""

    code = "P415"


def need_float(ctx: NodeContext) -> None:
    """Refuse other element types than floats in the first input; f16 and bf16 compute in f32."""
    info = data(ctx, 0)
    if not info.dtype.is_float:
        raise Unsupported(f"{ctx.op_type} on {info.dtype}")
    accumulates(ctx)


def accumulates(ctx: NodeContext) -> None:
    """The operator adds up many terms: f16 and bf16 compute in f32."""
    dtype = data(ctx, 0).dtype
    if dtype.is_float and dtype.bits < 32:
        raise Halves(f"{ctx.op_type} on {dtype}")


def without_empty(ctx: NodeContext) -> NodeContext:
    """Empty constants (Resize's `roi`, a piece of Concat) as absent inputs.

    Raises `Unsupported` for other tensors without elements: there is nothing to loop over.
    """
    for info in (*ctx.inputs, *ctx.outputs):
        if info is not None and info.size == 0 and info.const is None:
            raise Unsupported(f"{ctx.op_type} of a tensor without elements")
    if all(info is None or info.size for info in ctx.inputs):
        return ctx
    return replace(ctx, inputs=tuple(info if info is not None and info.size else None for info in ctx.inputs))
