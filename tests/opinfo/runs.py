"""One sample of an OpInfo through the backend, against eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from polyc.graph_driver.torch_bridge.backend import compilations, polyc_backend
from polyc.poly.records import dataclass

SEED = 42
"""What OpInfos of random operators set, too (`wrapper_set_seed`)."""

TOLERANCE = 3e-5
"""Relative to the size of an element, and absolute: sums of a thousand products in another order differ by 1.4e-5."""

KERNELS, EAGER, WRONG, FAILED, REFUSED = "kernels", "eager", "wrong", "failed", "not traced"
NO_GRADIENT = "without gradient"


@dataclass(frozen=True)
class Outcome:
    """`kind`: `kernels` (all in kernels, equal to eager mode), `eager` (equal, but torch ran some of it), `wrong`,
    `failed` (an error of polyc), `not traced` (torch itself cannot make a graph of it, or eager mode refuses it),
    `without gradient` (nothing that it computes depends on a tensor that has one)."""

    kind: str
    reason: str = ""


def run(op: Any, sample: Any, backward: bool) -> Outcome:
    """What becomes of a sample: of its results, or, `backward`, of the gradients of its tensors."""
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        x, args, kwargs = tree_unflatten(given, spec)
        found = op(x, *args, **kwargs)
        return tuple(t for t in tree_leaves(found) if isinstance(t, torch.Tensor))

    tensors = [leaves[k].detach() for k in places]
    wanted = [bool(backward and leaves[k].requires_grad) for k in places]
    if backward and not any(wanted):
        return Outcome(NO_GRADIENT)
    return compared(call, tensors, wanted, op.name)


def compared(
    call: Callable[..., Any], tensors: Sequence[torch.Tensor], wanted: Sequence[bool], op_name: str
) -> Outcome:
    """A function of tensors through the backend against itself; with gradients of those that are `wanted`."""
    torch.manual_seed(SEED)
    try:
        expected = _results(call, tensors, wanted)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        return Outcome(REFUSED, _line(error))
    if expected is None:
        return Outcome(NO_GRADIENT)
    before = len(compilations())
    torch.manual_seed(SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = polyc_backend(_module(call, len(tensors)), _fresh(tensors, wanted), options={"threads": 1})
            torch.manual_seed(SEED)
            found = _results(made, tensors, wanted)
    except Exception as error:
        by_torch = "torch._subclasses" in type(error).__module__ or any(t in str(error) for t in _TRACING)
        kind = REFUSED if by_torch else FAILED
        return Outcome(kind, f"{type(error).__name__}: {_line(error)}")
    assert found is not None
    if op_name.removeprefix("new_").startswith("empty"):  # their elements are whatever lay in memory
        found, expected = ([torch.zeros_like(t) for t in ts] for ts in (found, expected))
    difference = differing(found, expected)
    if difference and not _as_in_double(call, tensors, wanted, found, expected):
        return Outcome(WRONG, difference)
    reasons = [str(e) for c in compilations()[before:] for e in c.eager]
    reasons += [
        f"on the host: {h}" for c in compilations()[before:] if c.program.model for h in _hosts(c.program.model)
    ]
    return Outcome(EAGER, "; ".join(dict.fromkeys(reasons))) if reasons else Outcome(KERNELS)


def _as_in_double(
    call: Callable[..., Any], tensors: Sequence[torch.Tensor], wanted: Sequence[bool], found: Sequence[Any],
    expected: Sequence[Any],
) -> bool:  # fmt: skip
    """Whether what differs from eager mode in float32 equals eager mode in float64: the difference is eager's rounding
    (the norm of a single element, `x * r - mean * r`, is not 0 there)."""
    torch.manual_seed(SEED)
    try:
        exact = _results(call, [t.double() if t.dtype is torch.float32 else t for t in tensors], wanted)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return False
    if exact is None or any((x is None) != (e is None) for x, e in zip(exact, expected, strict=True)):
        return False
    return not differing(found, [x if x is None else x.to(e.dtype) for x, e in zip(exact, expected, strict=True)])


_TRACING = ("Unbacked", "convert all Tensors to FakeTensors")
"""Words of torch's errors where AOTAutograd makes no graph: data decide a shape, an index is a list."""


def _hosts(model: Any) -> list[str]:
    from polyc.graph_driver.torch_bridge.eager import EagerCall

    return [s.label for s in model.plan.steps if s.kind == "host" and not isinstance(model.hosts[s.index], EagerCall)]


def _fresh(tensors: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor]:
    made = []
    for t, grad in zip(tensors, wanted, strict=True):
        own = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t) if _dense(t) else t.clone()
        made.append(own.requires_grad_(grad))
    return made


def _dense(t: torch.Tensor) -> bool:
    return t.layout is torch.strided and not t.is_conj() and not t.is_neg() and 0 not in t.stride()


def _results(call: Callable[..., Any], tensors: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[Any] | None:
    """Results, or gradients (None: of nothing) for fixed adjoints of the results."""
    given = _fresh(tensors, wanted)
    found = [t for t in call(*given)]
    if not any(wanted):
        return found
    ends = [t for t in found if t.requires_grad]
    if not ends:
        return None
    generator = torch.Generator().manual_seed(1)
    adjoints = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in ends]
    sources = [t for t in given if t.requires_grad]
    return list(torch.autograd.grad(ends, sources, adjoints, allow_unused=True))


def _module(call: Callable[..., Any], operands: int) -> torch.fx.GraphModule:
    """A graph of one node, which AOTAutograd traces into."""
    graph = torch.fx.Graph()
    places = [graph.placeholder(f"x{k}") for k in range(operands)]
    graph.output(graph.call_function(call, tuple(places)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def differing(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """What the difference is, empty if there is none."""
    for k, (f, e) in enumerate(zip(found, expected, strict=True)):
        if (f is None) != (e is None):
            return f"result {k} is {'absent' if f is None else 'there'}"
        if e is None:
            continue
        try:
            torch.testing.assert_close(
                f, e, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True, check_stride=False, check_layout=True
            )
        except AssertionError as error:
            return f"result {k}: " + "; ".join(str(error).splitlines()[:4])
    return ""


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
