"""ATen operators that copy, or change the element type alone."""

from __future__ import annotations

from typing import Any

import torch

from polyc.graph_driver.torch_bridge.lowering import Lowering, Value, aten
from polyc.graph_driver.torch_bridge.types import polyc_dtype


@aten("_to_copy.default")
def to_copy(b: Lowering, x: Value, dtype: torch.dtype | None = None, **where: Any) -> Value:
    """In another element type."""
    return x if dtype is None else b.cast(x, polyc_dtype(dtype))


@aten("_to_copy.dtype", "prims.convert_element_type.default", "view_of.default")
def convert(b: Lowering, x: Value, dtype: torch.dtype) -> Value:
    """In another element type."""
    return b.cast(x, polyc_dtype(dtype))


@aten(
    "clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "lift_fresh.default",
    "alias_copy.default", "detach_copy.default", "contiguous.default", "positive.default",
)  # fmt: skip
def same(b: Lowering, x: Value, **where: Any) -> Value:
    """The same elements."""
    return x


@aten("copy.default")
def copy(b: Lowering, x: Value, y: Value, non_blocking: bool = False) -> Value:
    """`y` with the type and shape of `x`."""
    return b.expand(b.cast(y, x.dtype), x.shape)
