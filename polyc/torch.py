"""PyTorch with polyc as its compiler: `polyc.torch.compile(module)`, or `torch.compile(module, backend="polyc")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polyc.graph_driver.torch_bridge.backend import Compilation, compilations, polyc_backend
from polyc.graph_driver.torch_bridge.custom import register
from polyc.graph_driver.torch_bridge.exported import ExportedModel, compile_exported

__all__ = [
    "Compilation", "ExportedModel", "compilations", "compile", "compile_exported", "explain", "polyc_backend",
    "register",
]  # fmt: skip


def compile(module: Any = None, *, strict: bool = False, threads: int | None = None, **keywords: Any) -> Any:
    """`torch.compile(module, backend="polyc", ...)`.

    Args:
        module: a module or a function; None: the result is a decorator.
        strict: refuse operators that would run in eager mode.
        threads: None is torch's number.
        keywords: of `torch.compile`, as `dynamic` and `fullgraph`.
    """
    options = {"strict": strict, "threads": threads}
    return torch.compile(module, backend=polyc_backend, options=options, **keywords)


def explain(module: Callable[..., Any]) -> Callable[..., str]:
    """A function of the module's arguments that gives what `torch._dynamo.explain` says (graphs, and why they break),
    and of each graph that polyc compiled the kernels and the operators that run in eager mode, with reasons and
    places."""

    def explained(*args: Any, **kwargs: Any) -> str:
        said = str(torch._dynamo.explain(module)(*args, **kwargs))
        torch._dynamo.reset()
        before = len(compilations())
        compile(module)(*args, **kwargs)
        return "\n".join([said, *map(str, compilations()[before:])])

    return explained
