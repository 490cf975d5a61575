"""`torch.compile(backend="polyc")`: AOTAutograd's graphs compiled by polyc.

torch finds `polyc_backend` by the entry point `torch_dynamo_backends`. AOTAutograd makes a functional graph of the
forward pass and one of the backward pass, in core ATen operators; each becomes a `Program`. Where sizes are symbols
(`dynamic=True`), one program is compiled for all of them, or one for the sizes of each call where something needs
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import _disable_current_modes

from polyc.graph_driver.backends.registry import platform_of
from polyc.graph_driver.compiling.from_source import compile_built
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.torch_bridge.conversion import Eager, convert
from polyc.graph_driver.torch_bridge.decomposed import PROGRAMS
from polyc.graph_driver.torch_bridge.program import AllSizesProgram, Program
from polyc.poly.errors import ArgumentError, OptionError, PolycError
from polyc.poly.records import dataclass
from polyc.poly.words import first_line

KEPT = 64
"""Programs for the sizes of calls that are kept for each graph."""


@dataclass
class Compilation:
    """A graph that was compiled: `pass_` is `forward`, `backward` or `inference`."""

    pass_: str
    program: Program
    eager: Sequence[Eager]
    source: torch.fx.GraphModule
    numbers_because: str = ""
    """Of a graph with symbolic sizes: why this program is for those of one call only."""

    def __str__(self) -> str:
        kernels = 0 if self.program.model is None else self.program.model.report().kernels
        lines = [f"{self.pass_}: {kernels} kernels, {len(self.eager)} operators in eager mode"]
        if self.numbers_because:
            lines.append(f"  for the sizes of one call: {self.numbers_because}")
        return "\n".join([*lines, *(f"  {e}" for e in self.eager)])


_compiled: list[Compilation] = []


def compilations() -> list[Compilation]:
    """The graphs that were compiled so far in this process, the latest at the end."""
    return list(_compiled)


def polyc_backend(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **more: Any
) -> Callable[..., Any]:
    """A backend of `torch.compile`.

    Args:
        gm: Dynamo's graph.
        example_inputs: its arguments, as fake tensors.
        options: `strict=True` refuses operators that would run in eager mode; `threads` (None: torch's number).
        more: what torch hands to all backends, which has no effect here.

    Raises:
        OptionError: there is no such option.
        ModelError: something of the graph cannot run; with `strict`, an operator that polyc has not.
    """
    known = {"strict": False, "threads": None}
    for name in options or {}:
        if name not in known:
            raise OptionError(f"the polyc backend has no option '{name}'; it has {', '.join(known)}")
    chosen = {**known, **(options or {})}
    compiler = {k: partial(_compile, pass_=k, **chosen) for k in ("forward", "backward", "inference")}
    aot = aot_autograd(
        fw_compiler=compiler["forward"], bw_compiler=compiler["backward"], inference_compiler=compiler["inference"],
        decompositions=decompositions(), partition_fn=min_cut_rematerialization_partition,
    )  # fmt: skip
    with sdpa_kernel(SDPBackend.MATH):  # attention as its products, whose adjoint AOTAutograd derives
        return aot(gm, example_inputs)  # type: ignore[no-any-return]


@cache
def decompositions() -> dict[Any, Any]:
    """torch's own, as far as polyc does not take the operator as it is."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    found = dict(core_aten_decompositions())
    aten = torch.ops.aten
    found.update(get_decompositions([
        aten.native_layer_norm_backward, aten.native_group_norm_backward, aten.native_batch_norm_backward,
        aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional, aten._native_batch_norm_legit.no_stats,
        aten.native_batch_norm, aten._softmax_backward_data, aten._log_softmax_backward_data, aten.gelu_backward,
        aten.hardtanh_backward, aten.threshold_backward, aten.silu, aten.silu_backward, aten.mse_loss,
        aten.nll_loss_forward, aten.nll_loss_backward, aten._unsafe_index_put, aten.linalg_vector_norm,
    ]))  # fmt: skip
    found.update(PROGRAMS)
    for kept in _TAKEN_AS_THEY_ARE:
        for overload in kept.overloads():
            found.pop(getattr(kept, overload), None)
    return found


_TAKEN_AS_THEY_ARE = (
    torch.ops.aten.embedding_dense_backward, torch.ops.aten.select_backward, torch.ops.aten.slice_backward,
    torch.ops.aten.upsample_nearest2d, torch.ops.aten._adaptive_avg_pool2d_backward, torch.ops.aten.native_dropout,
    torch.ops.aten.baddbmm, torch.ops.aten.stack, torch.ops.aten.masked_fill, torch.ops.aten.addcmul,
    torch.ops.aten.grid_sampler_3d,
)  # fmt: skip


def _compile(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, pass_: str, strict: bool, threads: int | None
) -> Callable[..., Any]:
    options = CompileOptions(threads=threads or torch.get_num_threads())
    if _has_symbols(gm):
        made: Callable[[list[Any]], list[Any]] = PerSizes(gm, pass_, strict, options)
    else:
        made = program_of(gm, pass_, None, strict, options)

    def run(args: list[Any]) -> list[Any]:
        return made(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def program_of(
    gm: torch.fx.GraphModule, pass_: str, args: Sequence[Any] | None, strict: bool, options: CompileOptions,
    fixed: Mapping[str, torch.Tensor] | None = None,
) -> Program:  # fmt: skip
    """A graph of ATen operators, compiled; `args` are those of a call, for symbolic sizes, `fixed` arguments that
    become constants, by name. Raises as `convert`."""
    with _disable_current_modes():  # constants are computed, not imagined
        converted = convert(gm, pass_, args, strict, fixed)
        model = None
        if converted.graph.outputs:
            model = compile_built(converted.graph, platform_of(options.target, options.threads), options)
    program = Program(converted, model)
    _compiled.append(Compilation(pass_, program, converted.eager, gm))
    return program


def all_sizes_program(
    gm: torch.fx.GraphModule, pass_: str, args: Sequence[Any], options: CompileOptions,
    fixed: Mapping[str, torch.Tensor] | None,
) -> AllSizesProgram:  # fmt: skip
    """A graph with symbolic sizes, compiled for all of them. Raises `PolycError`: something needs numbers."""
    with _disable_current_modes():
        converted = convert(gm, pass_, args, False, fixed, formulas=True)
        model = None
        if converted.graph.outputs:
            model = compile_built(converted.graph, platform_of(options.target, options.threads), options)
    return AllSizesProgram(converted, model)


def _has_symbols(gm: torch.fx.GraphModule) -> bool:
    for node in gm.graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, torch.SymInt):
            return True
        if isinstance(val, torch.Tensor) and any(isinstance(n, torch.SymInt) for n in (*val.shape, *val.stride())):
            return True
    return False


class PerSizes:
    """A graph with symbolic sizes: one program for all of them; where something needs numbers (`reason`), a program for
    the sizes of each call, of which the last ones are kept."""

    def __init__(
        self, gm: torch.fx.GraphModule, pass_: str, strict: bool, options: CompileOptions,
        fixed: Mapping[str, torch.Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.gm, self.pass_, self.strict, self.options, self.fixed = gm, pass_, strict, options, fixed
        self.programs: dict[Any, Program] = {}
        self.all_sizes: AllSizesProgram | None = None
        self.reason: str | None = None

    def _for_all(self, args: list[Any]) -> Program | None:
        """The program for all sizes at those of this call; None where there is none for them."""
        if self.reason is not None:
            return None
        if self.all_sizes is None:
            try:
                self.all_sizes = all_sizes_program(self.gm, self.pass_, args, self.options, self.fixed)
                _compiled.append(Compilation(self.pass_, self.all_sizes.at(args), (), self.gm))
            except PolycError as error:
                self.reason = first_line(error)
                return None
        try:
            return self.all_sizes.at(args)
        except ArgumentError:
            return None  # a guard excludes these sizes

    def __call__(self, args: list[Any]) -> list[Any]:
        found = self._for_all(args)
        if found is not None:
            return found(args)
        key = tuple((tuple(a.shape), a.stride()) if isinstance(a, torch.Tensor) else a for a in args)
        program = self.programs.pop(key, None)
        if program is None:
            program = program_of(self.gm, self.pass_, args, self.strict, self.options, self.fixed)
            _compiled[-1].numbers_because = self.reason or "a guard excludes these sizes"
        self.programs[key] = program
        while len(self.programs) > KEPT:
            del self.programs[next(iter(self.programs))]
        return program(args)
