"""A compiled graph that runs on the memory of torch's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from polyc.graph_driver.execution.execute import NativeExecutor
from polyc.graph_driver.graph.size import SizeError
from polyc.graph_driver.running.all_sizes import KEPT_SIZES, AllSizes
from polyc.graph_driver.torch_bridge.conversion import Alias, Converted, Made
from polyc.graph_driver.torch_bridge.eager import EagerCall
from polyc.graph_driver.torch_bridge.types import TO_TORCH, as_array, as_tensor
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import BuildError, ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.execution.executor import Executor
    from polyc.graph_driver.execution.run_memory import RunMemory
    from polyc.graph_driver.planning.slots import Step
    from polyc.graph_driver.running.model import Model


class Program:
    """A model with torch's tensors as arguments and results. Nothing is copied but arguments that lie otherwise than
    the graph said; results are new tensors of torch's own memory."""

    def __init__(self, converted: Converted, model: Model | None, executor: Executor | None = None) -> None:
        """`model`: None where all results are arguments. `executor`: that for these sizes, where the model has all."""
        self.model = model
        self._arguments = [(a.position, a.dtype, a.shape, a.stride) for a in converted.arguments]
        self._results = converted.results
        self._made = [r for r in converted.results if isinstance(r, Made)]
        if model is not None:
            executor = executor or model.executor()
            if not isinstance(executor, NativeExecutor):
                raise BuildError("graphs of PyTorch run on this machine's CPU only")
            self._executor = executor
            wanted = [model.plan.inputs.index(n) for n in converted.graph.inputs]
            assert wanted == list(range(len(wanted)))
            self._in_python = bool(model.plan.python_steps)

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """The results for these arguments."""
        made: list[torch.Tensor] = []
        if self.model is not None:
            given = [_read(args[k], dtype, shape, stride) for k, dtype, shape, stride in self._arguments]
            made = [torch.empty_strided(m.shape, m.stride, dtype=m.dtype) for m in self._made]
            steps = _Steps(self.model, _real(given), _real(made)) if self._in_python else None
            host = None if steps is None else steps.run
            self._executor.run_at([t.data_ptr() for t in given], [t.data_ptr() for t in made], host)
            if steps is not None:
                names = self.model.plan.outputs
                made = [steps.values.get(n, t) for n, t in zip(names, made, strict=True)]
        rest = iter(made)
        return [
            next(rest) if isinstance(r, Made) else _aliased(args, r) if isinstance(r, Alias) else r.value
            for r in self._results
        ]


class AllSizesProgram:
    """A model for all values of symbolic sizes: a `Program` that shares its code for those of each call."""

    def __init__(self, converted: Converted, model: Model | None) -> None:
        """Raises `SizeError`: a step needs Python, which has no formulas."""
        if model is not None and model.plan.python_steps:
            raise SizeError("a step runs on the host, which needs sizes that are numbers")
        self.converted, self.model = converted, model
        self._programs: dict[tuple[int, ...], Program] = {}
        ranges = {} if converted.graph.symbols is None else converted.graph.symbols.ranges
        self._where: dict[str, tuple[int, int | None]] = {}
        """Each symbol with the argument that has it, and its axis there; None for an argument that is a number."""
        for a in converted.arguments:
            for axis, n in enumerate(a.shape):
                if str(n) in ranges:
                    self._where.setdefault(str(n), (a.position, axis))
        for position, name in converted.numbers.items():
            if name in ranges:
                self._where.setdefault(name, (position, None))
        missing = sorted(ranges.keys() - self._where.keys())
        if missing:
            raise SizeError(f"no argument has the size {missing[0]}")

    def at(self, args: Sequence[Any]) -> Program:
        """The program for the sizes of these arguments. Raises `ArgumentError`: a guard excludes them."""
        key = tuple([args[k] if axis is None else args[k].shape[axis] for k, axis in self._where.values()])
        found = self._programs.get(key)
        if found is None:
            values = dict(zip(self._where, map(int, key), strict=True))
            executor = None
            if self.model is not None:
                running = self.model.running
                assert isinstance(running, AllSizes)
                executor = running.at(values)
            while len(self._programs) >= KEPT_SIZES:
                del self._programs[next(iter(self._programs))]
            found = self._programs[key] = Program(self.converted.at(values), self.model, executor)
        return found


def _real(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """With complex numbers as what they are in memory: two real ones each."""
    return [torch.view_as_real(t) if t.dtype.is_complex and t.layout is torch.strided else t for t in tensors]


def _read(
    arg: torch.Tensor | None, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]
) -> torch.Tensor:
    """The argument where it lies, or a copy that lies as the program reads it, with what torch puts off (conjugation,
    another sign) done. None is a token, which has no elements: torch orders operators with effects by it."""
    if arg is None:
        return torch.empty(shape, dtype=dtype)
    if arg.is_neg() or arg.is_conj():
        arg = arg.resolve_neg().resolve_conj()
    if arg.stride() == stride and arg.shape == shape:
        return arg
    if arg.shape != shape:
        raise BuildError(f"an argument has the shape {list(arg.shape)}, the graph was compiled for {list(shape)}")
    if all(n == 1 or a == b for n, a, b in zip(shape, arg.stride(), stride)):
        return arg
    return torch.empty_strided(shape, stride, dtype=dtype).copy_(arg)


def _aliased(args: Sequence[Any], result: Alias) -> torch.Tensor:
    source: torch.Tensor = args[result.position]
    if result.whole:
        return source
    return source.as_strided(result.shape, result.stride, source.storage_offset() + result.offset)


class _Steps:
    """The steps of one run that need Python."""

    def __init__(self, model: Model, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        self.plan, self.hosts, self.weights = model.plan, model.hosts, model.weights
        self.given, self.made = given, made
        self.values: dict[str, torch.Tensor] = {}
        """Tensors of element types that the plan has no memory for."""
        for name, tensor in zip(self.plan.inputs, given, strict=True):
            if self.plan.slots[name].dtype is None:
                self.values[name] = tensor

    def run(self, step: Step, memory: RunMemory) -> None:
        """One step."""
        call = self.hosts[step.index]
        values = [self._tensor(n, memory) for n in step.args]
        if isinstance(call, EagerCall):
            results = call.run(values)
        else:
            results = [as_tensor(np.asarray(r)) for r in call([as_array(v) for v in values], {})]
        for name, result in zip(step.results, results, strict=True):
            slot = self.plan.slots.get(name)
            if slot is None or slot.dtype is None:
                self.values[name] = result
            elif result.shape != slot.shape:
                raise ModelError(
                    f"{step.label} made the shape {list(result.shape)}, torch announced {list(slot.shape or ())}"
                )
            else:
                self._tensor(name, memory).copy_(result)

    def _tensor(self, name: str, memory: RunMemory) -> torch.Tensor:
        if name in self.values:
            return self.values[name]
        slot = self.plan.slots[name]
        assert slot.dtype is not None and slot.shape is not None and slot.layout is None
        dtype, place = TO_TORCH[BY_NAME[slot.dtype]], slot.place
        if place.kind in ("input", "output"):
            whole = (self.given if place.kind == "input" else self.made)[place.index]
            step = [int(np.prod(slot.shape[k + 1 :], dtype=np.int64)) for k in range(len(slot.shape))]
            return whole.as_strided(slot.shape, step, whole.storage_offset() + place.offset // slot_bytes(dtype))
        memory_of = memory.arena if place.kind == "arena" else self.weights
        part = torch.from_numpy(memory_of[place.offset : place.offset + slot.nbytes])
        return part.view(dtype).view(slot.shape)


def slot_bytes(dtype: torch.dtype) -> int:
    """Bytes of an element."""
    return int(dtype.itemsize)
