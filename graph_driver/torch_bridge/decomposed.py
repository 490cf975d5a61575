"""ATen operators as programs of other ATen operators, where torch has no such decomposition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from polyc.graph_driver.torch_bridge.grids import grid_sampler_2d, grid_sampler_backward


def encoder_layer(
    x: Tensor, width: int, heads: int, w_qkv: Tensor, b_qkv: Tensor, w_out: Tensor, b_out: Tensor, gelu: bool,
    norm_first: bool, eps: float, w_norm1: Tensor, b_norm1: Tensor, w_norm2: Tensor, b_norm2: Tensor, w_1: Tensor,
    b_1: Tensor, w_2: Tensor, b_2: Tensor, mask: Tensor | None = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """A layer of a transformer's encoder, which torch has as one operator for inference; with a mask it stays that."""
    if mask is not None or x.is_nested:
        return NotImplemented

    def attention(h: Tensor) -> Tensor:
        batch, length, _ = h.shape
        q, k, v = F.linear(h, w_qkv, b_qkv).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) * (width // heads) ** -0.5, -1)
        return F.linear((scores @ v).transpose(1, 2).reshape(batch, length, width), w_out, b_out)

    def forward(h: Tensor) -> Tensor:
        inner = F.linear(h, w_1, b_1)
        return F.linear(F.gelu(inner) if gelu else F.relu(inner), w_2, b_2)

    def norm1(h: Tensor) -> Tensor:
        return F.layer_norm(h, (width,), w_norm1, b_norm1, eps)

    def norm2(h: Tensor) -> Tensor:
        return F.layer_norm(h, (width,), w_norm2, b_norm2, eps)

    if norm_first:
        x = x + attention(norm1(x))
        return x + forward(norm2(x))
    x = norm1(x + attention(x))
    return norm2(x + forward(x))


PROGRAMS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
    torch.ops.aten.grid_sampler_2d.default: grid_sampler_2d,
    torch.ops.aten.grid_sampler_2d_backward.default: grid_sampler_backward,
    torch.ops.aten.grid_sampler_3d_backward.default: grid_sampler_backward,
}
"""By operator."""
