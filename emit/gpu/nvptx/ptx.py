"""PTX of kernels: LLVM's passes and its NVPTX back end. No CUDA is needed, and no GPU."""

from __future__ import annotations

from polyc.emit.llvm import jit
from polyc.poly.errors import BuildError
from polyc.poly.target import GpuTarget


def to_ptx(text: str, target: GpuTarget) -> str:
    """PTX for `target` of a module that `to_nvptx` made.

    Raises:
        BuildError: LLVM does not know the architecture or refuses the text.
    """
    from polyc.emit.gpu.nvptx.source import TRIPLE

    try:
        return jit.assembly_for(text, TRIPLE, target.arch)
    except RuntimeError as error:
        raise BuildError(f"LLVM makes no PTX for {target.name}: {error}") from None
