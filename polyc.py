"""polyc's public API in one module: `import polyc`.

Light by design: the code generators and the graph driver load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from frontend_dsl import *  # noqa: F403
from frontend_dsl import __all__ as _dsl_names
from graph_driver import wiring as _wiring
from poly.dtypes import bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from poly.errors import (
    ArgumentError,
    BuildError,
    IllegalSchedule,
    ModelError,
    PolycError,
    ScheduleError,
    ScopError,
)

if TYPE_CHECKING:
    from graph_driver.compile_model import compile_model
    from graph_driver.execution.watching import Watch
    from graph_driver.external import register_external, unregister_external
    from graph_driver.model import Model, load
    from poly.scop import Scop
    from scheduler.schedule import Schedule

__version__ = "0.1.0"

_wiring.connect()

_LAZY = {
    "compile_model": "graph_driver.compile_model",
    "load": "graph_driver.model",
    "Model": "graph_driver.model",
    "Watch": "graph_driver.execution.watching",
    "Schedule": "scheduler.schedule",
    "Scop": "poly.scop",
    "register_external": "graph_driver.external",
    "unregister_external": "graph_driver.external",
}

__all__ = [
    *_dsl_names,
    "ArgumentError",
    "BuildError",
    "IllegalSchedule",
    "Model",
    "ModelError",
    "PolycError",
    "Schedule",
    "ScheduleError",
    "Scop",
    "ScopError",
    "Watch",
    "bf16",
    "bool_",
    "compile_model",
    "f16",
    "f32",
    "f64",
    "i16",
    "i32",
    "i64",
    "i8",
    "load",
    "register_external",
    "u16",
    "u32",
    "u64",
    "u8",
    "unregister_external",
]


def __getattr__(name: str) -> Any:
    """Load the heavy parts (PEP 562) when they are first used."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'polyc' has no attribute '{name}'")
