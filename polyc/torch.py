"""PyTorch with polyc as its compiler: `polyc.torch.compile(module)`, or `torch.compile(module, backend="polyc")`."""

from __future__ import annotations

from typing import Any

import torch

from polyc.graph_driver.torch_bridge.backend import Compilation, compilations, polyc_backend

__all__ = ["Compilation", "compilations", "compile", "polyc_backend"]


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
