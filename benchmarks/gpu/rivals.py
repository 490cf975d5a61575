"""torch on the same GPU: cuBLAS, its own kernels, torch.compile, and float64 to compare with."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np


@functools.cache
def torch_on_gpu() -> Any:
    """torch with a CUDA device and without tf32; None where there is none."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


def tensors(torch: Any, arrays: Sequence[np.ndarray]) -> list[Any]:
    """Copies on the GPU."""
    return [_tensor(torch, a) for a in arrays]


def _tensor(torch: Any, array: np.ndarray) -> Any:
    if array.dtype.name == "bfloat16":  # torch does not know NumPy's
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).cuda()
    return torch.from_numpy(array).cuda()


def exact(case: Any, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The result in float64, on the GPU where torch is there."""
    torch = torch_on_gpu()
    if torch is None:
        return np.asarray(case.exact(np, *(a.astype(np.float64) for a in arrays)))
    return np.asarray(case.exact(torch, *(t.double() for t in tensors(torch, arrays))).cpu().numpy())
