"""`compile_exported`: a program of `torch.export`, compiled with its weights as constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.torch_bridge.backend import Compilation, PerSizes, compilations, decompositions, program_of
from polyc.poly.errors import ArgumentError


class ExportedModel:
    """A compiled `ExportedProgram`: call it as the module that was exported. Weights are those of the export; buffers
    that the program updates (batch norm in training) are kept here and updated by calls."""

    def __init__(self, exported: Any, strict: bool, threads: int | None) -> None:
        self.exported = exported.run_decompositions(decompositions())
        signature = self.exported.graph_signature
        state = {**self.exported.state_dict, **self.exported.constants}
        changed = set(signature.buffers_to_mutate.values())
        where = {**signature.inputs_to_parameters, **signature.inputs_to_buffers,
                 **signature.inputs_to_lifted_tensor_constants}  # fmt: skip
        self._buffers = {n: state[n].detach().clone() for n in where.values() if n in changed}
        self._names = [n.name for n in self.exported.graph.nodes if n.op == "placeholder"]
        self._kept = {node: name for node, name in where.items() if name in changed}
        fixed = {node: state[name].detach() for node, name in where.items() if name not in changed}
        gm = self.exported.graph_module
        self._users = list(signature.user_inputs)
        options = CompileOptions(threads=threads or torch.get_num_threads())
        self._run: Callable[[list[Any]], list[Any]]
        if self.exported.range_constraints:
            self._run = PerSizes(gm, "exported", strict, options, fixed)
        else:
            self._run = program_of(gm, "exported", None, strict, options, fixed)

    @property
    def compilations(self) -> Sequence[Compilation]:
        """What was compiled: kernels, and operators in eager mode. With symbolic sizes after the first call."""
        return [c for c in compilations() if c.pass_ == "exported" and c.source is self.exported.graph_module]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result.

        Raises:
            ArgumentError: other arguments than those of the export.
        """
        flat, spec = pytree.tree_flatten((args, kwargs))
        if spec != self.exported.call_spec.in_spec:
            raise ArgumentError("the exported program takes its arguments in the form in which it was exported")
        given: Mapping[str, Any] = dict(zip(self._users, flat, strict=True))
        values = [
            self._buffers[self._kept[n]] if n in self._kept else given.get(n) for n in self._names
        ]  # the others are constants
        results = self._run(values)
        signature, made = self.exported.graph_signature, []
        for spec_of, result in zip(signature.output_specs, results, strict=True):
            if spec_of.kind.name == "BUFFER_MUTATION":
                self._buffers[spec_of.target].copy_(result)
            elif spec_of.kind.name == "USER_OUTPUT":
                made.append(result)
        return pytree.tree_unflatten(made, self.exported.call_spec.out_spec)


def compile_exported(exported: Any, *, strict: bool = False, threads: int | None = None) -> ExportedModel:
    """Compile what `torch.export.export` gives.

    Args:
        exported: an `ExportedProgram`; its symbolic sizes are compiled for at the first call with each.
        strict: refuse operators that would run in eager mode.
        threads: None is torch's number.

    Raises:
        ModelError: something cannot run; with `strict`, an operator that polyc has not.
    """
    return ExportedModel(exported, strict, threads)
