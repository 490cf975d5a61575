"""Element types of torch and of polyc, and sizes of fake tensors as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from polyc.graph_driver.graph.errors import Unsupported
from polyc.graph_driver.torch_bridge.lowering import Operand, Value
from polyc.poly import dtypes
from polyc.poly.dtypes import DType

TO_POLYC: Mapping[torch.dtype, DType] = {
    torch.float32: dtypes.f32, torch.float64: dtypes.f64, torch.float16: dtypes.f16, torch.bfloat16: dtypes.bf16,
    torch.int8: dtypes.i8, torch.int16: dtypes.i16, torch.int32: dtypes.i32, torch.int64: dtypes.i64,
    torch.uint8: dtypes.u8, torch.uint16: dtypes.u16, torch.uint32: dtypes.u32, torch.uint64: dtypes.u64,
    torch.bool: dtypes.bool_,
}  # fmt: skip
TO_TORCH: Mapping[DType, torch.dtype] = {ours: theirs for theirs, ours in TO_POLYC.items()}
PARTS: Mapping[torch.dtype, torch.dtype] = {
    torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64,
}  # fmt: skip
"""The element type of the real and imaginary parts of complex numbers."""


def polyc_dtype(dtype: torch.dtype) -> DType:
    """polyc's element type. Raises `Unsupported`."""
    found = TO_POLYC.get(dtype)
    if found is None:
        raise Unsupported(f"polyc has no element type {dtype}")
    return found


@cache
def _example(dtype: torch.dtype, scalar: bool) -> torch.Tensor:
    return torch.empty(() if scalar else (1,), dtype=dtype, device="meta")


def promoted(*operands: Operand) -> DType:
    """The element type in which torch computes with these operands (numbers and scalars count less)."""
    found: Any = None
    dims: torch.dtype | None = None
    zero: torch.dtype | None = None
    numbers: torch.dtype | None = None
    for x in operands:
        if isinstance(x, Value):
            one = TO_TORCH[x.dtype]
            if x.rank:
                dims = one if dims is None else torch.promote_types(dims, one)
            else:
                zero = one if zero is None else torch.promote_types(zero, one)
        else:
            one = (
                torch.bool if isinstance(x, bool) else torch.int64 if isinstance(x, int) else torch.get_default_dtype()
            )
            numbers = one if numbers is None else torch.promote_types(numbers, one)
    parts = [_example(dims, False)] if dims is not None else []
    parts += [_example(zero, True)] if zero is not None else []
    found = parts[0].dtype if parts else numbers
    if len(parts) == 2:
        found = torch.result_type(*parts)
    if parts and numbers is not None:
        number: Any = {torch.bool: True, torch.int64: 1}.get(numbers, 1.0)
        found = torch.result_type(_example(found, dims is None), number)
    return polyc_dtype(found)


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor on the CPU as an array of polyc's element type, without a copy where it is contiguous."""
    tensor = tensor.detach().resolve_neg().contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(dtypes.bf16.np)
    return tensor.numpy()


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor without a copy."""
    if array.dtype == dtypes.bf16.np:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
