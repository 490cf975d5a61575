"""polyc: operators in hybrid script and whole models, compiled by polyhedral methods.

The public API. The five packages of the compiler lie beside it, under this one import name: `polyc.poly`,
`polyc.frontend_dsl`, `polyc.scheduler`, `polyc.emit` and `polyc.graph_driver` (in the repository their folders are
at the top level and this folder links to them). Everything loads when it is first used, so that `import polyc` is
quick, and each package can be imported without the ones above it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyc.graph_driver import wiring as _wiring

if TYPE_CHECKING:
    from polyc.frontend_dsl import (
        Dim,
        DslError,
        Operator,
        abs,
        acos,
        asin,
        atan,
        bind,
        ceil,
        const_range,
        cos,
        cosh,
        dims,
        dot_bf16,
        dot_bytes,
        dot_pairs,
        empty,
        erf,
        exp,
        expm1,
        floor,
        fma,
        full,
        grid,
        inout,
        isinf,
        isnan,
        log,
        log1p,
        max,
        min,
        op,
        pack_bf16,
        parallel,
        pow,
        round,
        rsqrt,
        serial,
        sigmoid,
        sin,
        sinh,
        sqrt,
        tan,
        tanh,
        trunc,
        unroll,
        vectorize,
        where,
        widen_pairs,
        zeros,
    )
    from polyc.frontend_dsl.checkpointed import CheckpointedGradient, checkpointed_grad
    from polyc.frontend_dsl.derived import grad, jvp, vjp
    from polyc.graph_driver.artifacts.package import load
    from polyc.graph_driver.bounding.model import ErrorBounds, error_bounds
    from polyc.graph_driver.communication.ranks import RankError
    from polyc.graph_driver.compile_model import compile_model
    from polyc.graph_driver.execution.watching import Watch
    from polyc.graph_driver.farm.batch import batch
    from polyc.graph_driver.functional.front import from_functional, read_functional
    from polyc.graph_driver.graph.external import register_external, unregister_external
    from polyc.graph_driver.growing.caches import Growing
    from polyc.graph_driver.importing.annotations import AnnotationWarning
    from polyc.graph_driver.incremental.program import Incremental, incremental
    from polyc.graph_driver.parallel.network import Network
    from polyc.graph_driver.parallel.parallelise import Parallel, parallelise
    from polyc.graph_driver.python_graphs.builder import GraphBuilder
    from polyc.graph_driver.python_graphs.dynamic_batch import DynamicBatch
    from polyc.graph_driver.python_graphs.lazy_arrays import LazyArray, lazy
    from polyc.graph_driver.python_graphs.trace import Traced, trace
    from polyc.graph_driver.running.model import Model
    from polyc.graph_driver.session import InferenceSession
    from polyc.graph_driver.stablehlo.front import JaxFunction, from_jax, from_stablehlo, read_stablehlo
    from polyc.graph_driver.training.optimisers import SGD, Adam, AdamW, LossScaling
    from polyc.graph_driver.training.trainer import Training, training
    from polyc.poly.adjoint.errors import NotDifferentiable
    from polyc.poly.dtypes import bf16, bool_, c64, c128, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
    from polyc.poly.errors import (
        ArgumentError,
        BoundsError,
        BuildError,
        IllegalSchedule,
        ModelError,
        PolycError,
        ScheduleError,
        ScopError,
    )
    from polyc.poly.scop import Scop
    from polyc.scheduler import programs
    from polyc.scheduler.schedule import Schedule

__version__ = "0.1.0"

_NAMES = {  # module: what it holds of the public API
    "polyc.frontend_dsl": (
        "Dim DslError Operator abs acos asin atan bind ceil const_range cos cosh dims dot_bf16 dot_bytes dot_pairs"
        " empty erf exp expm1 floor fma full grid inout isinf isnan log log1p max min op pack_bf16 parallel pow round"
        " rsqrt serial sigmoid sin sinh sqrt tan tanh trunc unroll vectorize where widen_pairs zeros"
    ),
    "polyc.frontend_dsl.checkpointed": "CheckpointedGradient checkpointed_grad",
    "polyc.frontend_dsl.derived": "grad jvp vjp",
    "polyc.graph_driver.bounding.model": "ErrorBounds error_bounds",
    "polyc.graph_driver.compile_model": "compile_model",
    "polyc.graph_driver.execution.watching": "Watch",
    "polyc.graph_driver.growing.caches": "Growing",
    "polyc.graph_driver.importing.annotations": "AnnotationWarning",
    "polyc.graph_driver.communication.ranks": "RankError",
    "polyc.graph_driver.incremental.program": "Incremental incremental",
    "polyc.graph_driver.parallel.network": "Network",
    "polyc.graph_driver.parallel.parallelise": "Parallel parallelise",
    "polyc.graph_driver.functional.front": "from_functional read_functional",
    "polyc.graph_driver.graph.external": "register_external unregister_external",
    "polyc.graph_driver.artifacts.package": "load",
    "polyc.graph_driver.farm.batch": "batch",
    "polyc.graph_driver.python_graphs.builder": "GraphBuilder",
    "polyc.graph_driver.python_graphs.dynamic_batch": "DynamicBatch",
    "polyc.graph_driver.python_graphs.lazy_arrays": "LazyArray lazy",
    "polyc.graph_driver.python_graphs.trace": "Traced trace",
    "polyc.graph_driver.running.model": "Model",
    "polyc.graph_driver.session": "InferenceSession",
    "polyc.graph_driver.stablehlo.front": "JaxFunction from_jax from_stablehlo read_stablehlo",
    "polyc.poly.adjoint.errors": "NotDifferentiable",
    "polyc.graph_driver.training.optimisers": "SGD Adam AdamW LossScaling",
    "polyc.graph_driver.training.trainer": "Training training",
    "polyc.poly.dtypes": "bf16 bool_ c64 c128 f16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64",
    "polyc.poly.errors": "ArgumentError BoundsError BuildError IllegalSchedule ModelError PolycError ScheduleError "
    "ScopError",
    "polyc.poly.scop": "Scop",
    "polyc.scheduler.schedule": "Schedule",
}
_MODULES = {"programs": "polyc.scheduler.programs"}  # public names that are modules themselves
_EXTRAS = {"torch": ("polyc.torch", ""), "compile_exported": ("polyc.torch", "compile_exported")}
"""Names that need a package of the user's: module, and what in it (nothing: the module itself)."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()} | _MODULES

__all__ = [
    "Adam",
    "AdamW",
    "AnnotationWarning",
    "ArgumentError",
    "BoundsError",
    "BuildError",
    "CheckpointedGradient",
    "Dim",
    "DslError",
    "DynamicBatch",
    "ErrorBounds",
    "GraphBuilder",
    "Growing",
    "IllegalSchedule",
    "Incremental",
    "InferenceSession",
    "JaxFunction",
    "LazyArray",
    "LossScaling",
    "Model",
    "ModelError",
    "Network",
    "NotDifferentiable",
    "Operator",
    "Parallel",
    "PolycError",
    "RankError",
    "SGD",
    "Schedule",
    "ScheduleError",
    "Scop",
    "ScopError",
    "Traced",
    "Training",
    "Watch",
    "abs",
    "acos",
    "asin",
    "atan",
    "batch",
    "bf16",
    "bind",
    "bool_",
    "c128",
    "c64",
    "ceil",
    "checkpointed_grad",
    "compile_model",
    "const_range",
    "cos",
    "cosh",
    "dims",
    "dot_bf16",
    "dot_bytes",
    "dot_pairs",
    "empty",
    "erf",
    "error_bounds",
    "exp",
    "expm1",
    "f16",
    "f32",
    "f64",
    "floor",
    "fma",
    "from_functional",
    "from_jax",
    "from_stablehlo",
    "full",
    "grad",
    "grid",
    "i16",
    "i32",
    "i64",
    "i8",
    "incremental",
    "inout",
    "isinf",
    "isnan",
    "jvp",
    "lazy",
    "load",
    "log",
    "log1p",
    "max",
    "min",
    "op",
    "pack_bf16",
    "parallel",
    "parallelise",
    "pow",
    "programs",
    "read_functional",
    "read_stablehlo",
    "register_external",
    "round",
    "rsqrt",
    "serial",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trace",
    "training",
    "trunc",
    "u16",
    "u32",
    "u64",
    "u8",
    "unregister_external",
    "unroll",
    "vectorize",
    "vjp",
    "where",
    "widen_pairs",
    "zeros",
]

_wiring.connect()


def __getattr__(name: str) -> Any:
    """A public name, imported now (PEP 562) and kept."""
    if name in _EXTRAS:
        module_name, inner = _EXTRAS[name]
        extra = import_module(module_name)
        return getattr(extra, inner) if inner else extra
    if name not in _MODULE_OF:
        from polyc.poly.dtypes import KNOWN_TYPES, like_a_type

        hint = f": {KNOWN_TYPES}" if like_a_type(name) else ""
        raise AttributeError(f"module 'polyc' has no attribute '{name}'{hint}")
    module = import_module(_MODULE_OF[name])
    found = globals()[name] = module if name in _MODULES else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
