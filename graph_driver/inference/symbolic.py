"""Types and shapes of one node's outputs where operands have symbolic sizes.

onnx infers element types, and shapes at the representative sizes; the formulas come from our rules
and must agree with onnx there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnx

from polyc.graph_driver.graph.ir import Node, Tensor
from polyc.graph_driver.graph.size import Extent, Size, SizeError, evaluate
from polyc.graph_driver.graph.symbols import Guard, GuardError, Symbols
from polyc.graph_driver.inference import contrib
from polyc.graph_driver.inference.concrete import infer
from polyc.graph_driver.inference.shape_rules import RULES, Call, NoRule, Rule
from polyc.graph_driver.inference.values import value_of
from polyc.poly.errors import ModelError


class NotSymbolic(ModelError):
    """A node that sizes cannot stay symbolic for; `wanted` is what other representative sizes would have to keep."""

    code = "P403"

    def __init__(self, text: str, wanted: Guard | None) -> None:
        super().__init__(text)
        self.wanted = wanted


def is_symbolic(tensor: Tensor) -> bool:
    """Whether its shape or its value has formulas."""
    return tensor.sizes is not None or any(isinstance(n, Size) for n in tensor.shape or ())


def at_typical(tensor: Tensor, symbols: Symbols) -> Tensor:
    """The tensor with the representative sizes put in."""
    if not is_symbolic(tensor):
        return tensor
    values = symbols.typical
    const = tensor.const
    if tensor.sizes is not None:
        assert tensor.dtype is not None
        flat = [evaluate(n, values) for n in tensor.sizes.reshape(-1)]
        const = np.array(flat, tensor.dtype.np).reshape(tensor.sizes.shape)
    assert tensor.shape is not None
    return replace(tensor, shape=tuple(evaluate(n, values) for n in tensor.shape), const=const, sizes=None)


def infer_symbolic(
    node: Node, proto: onnx.NodeProto, tensors: Mapping[str, Tensor], opsets: Mapping[str, int], symbols: Symbols,
    what: str,
) -> dict[str, Tensor]:  # fmt: skip
    """The node's output tensors; one that follows from sizes alone has its value in `sizes` or `const`.

    Raises:
        ModelError: the operator has no rule, sizes do not fit, or a size must be a number.
        NotSymbolic: sizes of what it reads must be numbers.
    """
    reads: Sequence[str] = [*proto.input, *node.captures]
    numbers = {n: at_typical(tensors[n], symbols) for n in reads if n}
    call = Call(
        node.op_type, opsets.get(node.domain, 1), node.attrs, [tensors[i] if i else None for i in node.inputs],
        len(node.outputs), symbols,
    )  # fmt: skip
    contributed = node.domain == contrib.DOMAIN
    rule = RULES.get(node.op_type) if contributed or not node.domain else None
    try:
        found = contrib.infer(proto, numbers, what) if contributed else infer(proto, numbers, reads, opsets, what)
    except ModelError as error:
        raise NotSymbolic(str(error), _wanted(rule, call)) from None
    if not all(t.static for t in found.values()):
        return found  # data decide: a value of the host
    try:
        with symbols.at(what):
            known = None if node.domain else value_of(call)
            if known is not None:
                return {o: _valued(found[o], known, symbols, what) for o in node.outputs if o}
            if rule is None:
                raise NoRule(f"{node.kind} has no rule for them")
            shapes = rule(call)
    except (NoRule, GuardError, SizeError) as error:
        names = ", ".join(dict.fromkeys(s for n in reads if n for s in sorted(symbols_in(tensors[n]))))
        raise NotSymbolic(
            f"{what} cannot keep the sizes {names} symbolic: {error}; give them with --dim",
            error.wanted if isinstance(error, GuardError) else None,
        ) from None
    return {o: _shaped(found[o], s, symbols, what) for o, s in zip(node.outputs, shapes) if o}


@contextmanager
def sizes_decided(symbols: Symbols | None, what: str) -> Iterator[None]:
    """Guards found inside belong to the node `what`, of which a definition takes the place. Raises `NotSymbolic`."""
    if symbols is None:
        yield
        return
    try:
        with symbols.at(what):
            yield
    except (GuardError, SizeError) as error:
        wanted = error.wanted if isinstance(error, GuardError) else None
        raise NotSymbolic(f"{what} cannot keep its sizes symbolic: {error}; give them with --dim", wanted) from None


def _wanted(rule: Rule | None, call: Call) -> Guard | None:
    """What must hold of the sizes for a node that onnx refuses at the representative ones, if our rule knows it."""
    try:
        if rule is not None:
            rule(call)
    except GuardError as error:
        return error.wanted
    except Exception:  # the rules rely on onnx's checks, which this node has not passed
        return None
    return None


def symbols_in(tensor: Tensor) -> set[str]:
    """The symbols of a tensor's shape and value."""
    sizes = [*(tensor.shape or ()), *(tensor.sizes.reshape(-1) if tensor.sizes is not None else ())]
    return {s for n in sizes if isinstance(n, Size) for s in n.symbols()}


def _shaped(found: Tensor, shape: Sequence[Extent], symbols: Symbols, what: str) -> Tensor:
    numbers = tuple(evaluate(n, symbols.typical) for n in shape)
    if numbers != found.shape:
        raise NotSymbolic(
            f"{what}: result '{found.name}' is {list(shape)}, at the representative sizes {list(numbers)}, "
            f"but onnx infers {list(found.shape or ())}",
            None,
        )
    return replace(found, shape=tuple(shape), const=None)


def _valued(found: Tensor, value: np.ndarray, symbols: Symbols, what: str) -> Tensor:
    if value.shape != found.shape:
        raise NotSymbolic(
            f"{what}: result '{found.name}' has shape {list(value.shape)}, not {list(found.shape or ())}", None
        )
    assert found.dtype is not None
    if any(isinstance(n, Size) for n in value.reshape(-1)):
        return replace(found, shape=value.shape, const=None, sizes=value)
    return replace(found, shape=value.shape, const=value.astype(found.dtype.np))
