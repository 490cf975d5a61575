"""ATen operators that run in eager mode as a step of the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from polyc.graph_driver.torch_bridge.types import as_array, as_tensor
from polyc.poly.records import dataclass


@dataclass(frozen=True)
class Place:
    """Stands for the tensor operand of this number among the arguments."""

    number: int


class EagerCall:
    """A call of torch on tensors of the plan. Tensors are shared, results are copied to their place."""

    def __init__(
        self, target: Callable[..., Any], args: Any, kwargs: Any, reason: str, wanted: Sequence[int] = (0,)
    ) -> None:
        """`args`, `kwargs`: with a `Place` for each tensor. `wanted`: which results are used; the call gives these."""
        self.target, self.args, self.kwargs, self.reason, self.wanted = target, args, kwargs, reason, wanted

    def __call__(self, values: Sequence[Any], captures: Mapping[str, Any]) -> list[np.ndarray]:
        """The wanted results in order."""
        return [as_array(r) for r in self.run([as_tensor(np.asarray(v)) for v in values])]

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The call on tensors. Results have no conjugation left to do: operators below autograd know nothing of it."""
        with torch.no_grad():
            found = self.target(*filled(self.args, tensors), **filled(self.kwargs, tensors))
        results = found if isinstance(found, (tuple, list)) else [found]
        return [results[k].resolve_conj().resolve_neg() for k in self.wanted]

    def __repr__(self) -> str:
        return f"EagerCall({self.target}, {self.args}, {self.kwargs})"


def complex_of(parts: torch.Tensor) -> torch.Tensor:
    """Complex numbers of their real and imaginary parts, which are the last axis: in memory of their own, since that of
    the parts is another tensor's after this step."""
    return torch.view_as_complex(parts.clone(memory_format=torch.contiguous_format))


def parts_of(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The real and the imaginary parts of complex numbers."""
    return z.real, z.imag


def filled(args: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Arguments with the tensors in their places."""
    if isinstance(args, Place):
        return tensors[args.number]
    if isinstance(args, (tuple, list)):
        return type(args)(filled(a, tensors) for a in args)
    if isinstance(args, dict):
        return {k: filled(a, tensors) for k, a in args.items()}
    return args
