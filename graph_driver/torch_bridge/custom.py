"""`polyc.torch.register`: an operator of polyc's language as a custom operator of torch, with its derivative."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from polyc.frontend_dsl import Operator
from polyc.graph_driver.torch_bridge.inlined import inline
from polyc.graph_driver.torch_bridge.types import TO_TORCH, as_array, as_tensor
from polyc.poly.errors import ArgumentError
from polyc.poly.expr import Const

_registered: dict[str, Operator] = {}
_library = torch.library.Library("polyc", "DEF")


def register(op: Operator, name: str | None = None) -> Callable[..., Any]:
    """Make torch's operator `polyc::NAME` of an operator.

    The dispatcher knows it, fake tensors have its shapes, autograd its derivative (`op.grad`, compiled by polyc), and
    `torch.compile` keeps it in its graphs, where polyc's backend takes it as its loops. Array arguments are tensors on
    the CPU, which are read where they lie; numbers are floats or integers. Compile-time constants have their defaults.

    Args:
        op: an operator that returns new arrays.
        name: None is the operator's own.

    Returns:
        `torch.ops.polyc.NAME`.

    Raises:
        ArgumentError: it updates an argument in place, or another operator has the name.
    """
    name = name or op.name
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ArgumentError(f"'{name}' is no name for an operator of torch")
    changed = [p.name for p in op.signature.params if p.inout]
    if changed:
        raise ArgumentError(f"{op.name} updates its argument {changed[0]} in place: return a new array instead")
    if name in _registered:
        if _registered[name] is op:
            return getattr(torch.ops.polyc, name)  # type: ignore[no-any-return]
        raise ArgumentError(f"torch has an operator polyc::{name} already: give another name")
    parameters = [(p.name, "Tensor" if p.shape is not None else "float" if p.dtype.is_float else "int")
                  for p in op.signature.params]  # fmt: skip
    results = len(op.scop(**_unknown(op)).results) if op.signature.results is None else len(op.signature.results)
    _define(name, parameters, results, op)
    wanted = [p.name for p in op.signature.params if p.shape is not None and p.dtype.is_float]
    if wanted:
        _with_derivative(name, parameters, results, op, wanted)
    _registered[name] = op
    return getattr(torch.ops.polyc, name)  # type: ignore[no-any-return]


def _unknown(op: Operator) -> dict[str, tuple[int, ...]]:
    """Shapes where the signature has none."""
    return {p.name: (1,) for p in op.signature.params if p.any_rank}


def _define(
    name: str, parameters: Sequence[tuple[str, str]], results: int, op: Operator, like: Sequence[str] = ()
) -> None:
    """The operator with its kernel and its shapes, which are those of the arguments `like` where they are named."""
    taken = ", ".join(f"{kind} {parameter}" for parameter, kind in parameters)
    given = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
    _library.define(f"{name}({taken}) -> {given}")

    def run(*args: Any) -> Any:
        found = op(*[as_array(a) if isinstance(a, torch.Tensor) else a for a in args])
        made = [as_tensor(np.asarray(r)) for r in (found if isinstance(found, tuple) else (found,))]
        return made[0] if results == 1 else tuple(made)

    def imagined(*args: Any) -> Any:
        shapes = {n: tuple(map(int, a.shape)) for (n, _), a in zip(parameters, args) if isinstance(a, torch.Tensor)}
        if like:
            named = dict(zip((n for n, _ in parameters), args))
            found = [torch.empty_like(named[n], memory_format=torch.contiguous_format) for n in like]
            return found[0] if results == 1 else tuple(found)
        first = next(a for a in args if isinstance(a, torch.Tensor))
        scop = op.scop(**shapes)
        made = []
        for result in scop.results:
            array = scop.arrays[result]
            sizes = [int(e.value) if isinstance(e, Const) else 0 for e in array.shape]
            made.append(first.new_empty(sizes, dtype=TO_TORCH[array.dtype]))
        return made[0] if results == 1 else tuple(made)

    _library.impl(name, run, "CPU")
    torch.library.register_fake(f"polyc::{name}", imagined, lib=_library)
    inline(name, op)


def _with_derivative(
    name: str, parameters: Sequence[tuple[str, str]], results: int, op: Operator, wanted: Sequence[str]
) -> None:
    """The adjoint as an operator of its own, and autograd's formula that calls it."""
    adjoint = f"{name}_grad"
    more = [(f"adjoint{k}", "Tensor") for k in range(results)]
    _define(adjoint, [*parameters, *more], len(wanted), op.grad(wrt=list(wanted)), like=wanted)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*[a for a in inputs if isinstance(a, torch.Tensor)])
        ctx.numbers = [None if isinstance(a, torch.Tensor) else a for a in inputs]
        made = output if isinstance(output, tuple) else (output,)
        ctx.like = [(r.shape, r.dtype) for r in made]

    def backward(ctx: Any, *adjoints: torch.Tensor | None) -> tuple[Any, ...]:
        saved = iter(ctx.saved_tensors)
        args = [next(saved) if number is None else number for number in ctx.numbers]
        given = [torch.zeros(s, dtype=d) if a is None else a for a, (s, d) in zip(adjoints, ctx.like, strict=True)]
        found = getattr(torch.ops.polyc, adjoint)(*args, *given)
        gradients = dict(zip(wanted, found if isinstance(found, (tuple, list)) else (found,), strict=True))
        return tuple(gradients.get(parameter) for parameter, _ in parameters)

    torch.library.register_autograd(f"polyc::{name}", backward, setup_context=keep, lib=_library)
