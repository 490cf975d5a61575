"""Which OpInfos are of which core ATen operators.

An operator's own OpInfo is the one of its name. An operator that has none (`convolution`, `_softmax`) has those
OpInfos whose samples call it, and of these the ones that call the fewest other operators: `conv2d`, `softmax`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

BORROWED = Path(__file__).with_name("borrowed.json")
"""What `borrowed` found (`python -m tests.opinfo --borrow` writes it)."""

SAMPLES_SEEN = 10
"""Samples of an OpInfo that are run to see which operators it calls."""


def core_operators() -> list[str]:
    """ATen operators of which an overload has the tag `core` and that work on tensors."""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    packets = [p for p in packets if hasattr(p, "overloads")]
    names = [p.__name__ for p in packets if any(torch.Tag.core in getattr(p, o).tags for o in p.overloads())]
    return sorted(n for n in names if not n.startswith("sym_"))  # those give sizes, which are numbers here


def op_infos() -> list[Any]:
    """torch's OpInfos that have samples on a CPU in float32, or, of bitwise operators, in int64."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if {torch.float32, torch.int64} & op.supported_dtypes("cpu")]


def _dtype(op: Any) -> torch.dtype:
    return torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64


def samples(op: Any, grad: bool = False) -> Iterator[Any]:
    """The samples of an OpInfo, the same in each run: torch's generator goes on where the last sample left it, whatever
    is drawn between two of them."""
    dtype = _dtype(op)
    drawn, state = iter(op.sample_inputs("cpu", dtype, requires_grad=grad and dtype.is_floating_point)), None
    while True:
        others = torch.get_rng_state()
        if state is None:
            torch.manual_seed(0)
        else:
            torch.set_rng_state(state)
        sample = next(drawn, None)
        state = torch.get_rng_state()
        torch.set_rng_state(others)
        if sample is None:
            return
        yield sample


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def called(op: Any) -> tuple[set[str], set[str]]:
    """The ATen operators that the first samples of an OpInfo call, and those that their gradients call."""
    forward, backward = _Calls(), _Calls()
    for k, sample in enumerate(samples(op, grad=op.supports_autograd)):
        if k == SAMPLES_SEEN:
            break
        with suppress(Exception):  # what torch itself refuses calls nothing
            with forward:
                found = op(sample.input, *sample.args, **sample.kwargs)
            results = [t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, torch.Tensor)]
            results = [t for t in results if t.requires_grad and t.is_floating_point()]
            if results:
                with backward:
                    torch.autograd.backward(results, [torch.ones_like(t) for t in results])
    return forward.names, backward.names - forward.names


def cases(names: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The OpInfos of each core operator (of all, or of those named); none where no sample calls it."""
    wanted = [n for n in core_operators() if not names or n in names]
    every, borrowed = op_infos(), json.loads(BORROWED.read_text())
    own = _own(every)
    return {n: own.get(n) or [op for op in every if op.formatted_name in borrowed.get(n, ())] for n in wanted}


def _own(every: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for op in every:
        found.setdefault(op.aten_name or op.name, []).append(op)
    return found


def borrowed() -> dict[str, list[str]]:
    """The OpInfos of those operators that have none of their own: the text of `BORROWED`, in minutes."""
    every, found = op_infos(), {}
    own = _own(every)
    calls = [(op, *called(op)) for op in every]
    for name in core_operators():
        if name in own:
            continue
        counts = [(len(f if name in f else f | b), op) for op, f, b in calls if name in f or name in b]
        least = min((n for n, _ in counts), default=0)
        found[name] = sorted(op.formatted_name for n, op in counts if n == least)
    return {n: ops for n, ops in found.items() if ops}
