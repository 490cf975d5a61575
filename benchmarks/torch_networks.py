"""Networks in PyTorch that `python -m benchmarks --family torch` times and tests compare with eager mode.

Each is a function that makes `(module, inputs)` with weights and inputs from torch's generator; the loss of a training
step is the mean of the squared output.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Any, ...]]


def mlp() -> Made:
    """Four layers of 512 with GELU, a batch of 128."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(512, 512), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(512, 64)), (torch.randn(128, 512),)


class ResBlock(nn.Module):
    """A block of a diffusion U-Net: group norms, SiLU, a time embedding."""

    def __init__(self, channels: int = 64, out: int = 96, embedding: int = 128) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(16, channels), nn.GroupNorm(16, out)
        self.conv1, self.conv2 = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time, self.skip = nn.Linear(embedding, out), nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Images and the embedding of the time."""
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


def resblock() -> Made:
    """A diffusion ResBlock on 32x32 images."""
    return ResBlock(), (torch.randn(2, 64, 32, 32), torch.randn(2, 128))


class RmsNorm(nn.Module):
    """By the root of the mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Along the last axis."""
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Decoder(nn.Module):
    """A decoder block: rotary positions, grouped queries, SwiGLU."""

    def __init__(self, width: int = 256, heads: int = 8, groups: int = 2, length: int = 128) -> None:
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.each, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        angles = torch.outer(torch.arange(length).float(), 1e4 ** (-torch.arange(0, self.each, 2) / self.each))
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))

    def _rotated(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        """A batch of sequences."""
        batch, length, width = x.shape
        h = self.norm1(x)
        q = self.q(h).view(batch, length, self.heads, self.each).transpose(1, 2)
        k, v = self.kv(h).view(batch, length, 2, self.groups, self.each).permute(2, 0, 3, 1, 4)
        q, k = self._rotated(q), self._rotated(k)
        k = k.repeat_interleave(self.heads // self.groups, 1)
        v = v.repeat_interleave(self.heads // self.groups, 1)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(h.transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def decoder() -> Made:
    """A decoder block on two sequences of 128."""
    return Decoder(), (torch.randn(2, 128, 256),)


class ConvNext(nn.Module):
    """A ConvNeXt block: depthwise 7x7, layer norm, two products with GELU."""

    def __init__(self, channels: int = 96) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.one, self.two = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Images."""
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.two(F.gelu(self.one(h)))).permute(0, 3, 1, 2)


def convnext() -> Made:
    """A ConvNeXt block on 28x28 images."""
    return ConvNext(), (torch.randn(2, 96, 28, 28),)


class GruTagger(nn.Module):
    """Embedding, a GRU written with its cell, a linear layer over each word."""

    def __init__(self, words: int = 500, width: int = 64, hidden: int = 96, tags: int = 12) -> None:
        super().__init__()
        self.words, self.cell, self.tags = (
            nn.Embedding(words, width),
            nn.GRUCell(width, hidden),
            nn.Linear(hidden, tags),
        )
        self.hidden = hidden

    def forward(self, words: Tensor) -> Tensor:
        """Numbers of words."""
        x = self.words(words)
        h = x.new_zeros(x.shape[0], self.hidden)
        states = []
        for step in range(x.shape[1]):
            h = self.cell(x[:, step], h)
            states.append(h)
        return self.tags(torch.stack(states, 1))


def gru() -> Made:
    """A GRU tagger on 16 sentences of 12 words."""
    return GruTagger(), (torch.randint(0, 500, (16, 12)),)


class Cnn(nn.Module):
    """Convolutions with batch norm, pools, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )  # fmt: skip
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Images."""
        return self.out(self.features(x).flatten(1))


def cnn() -> Made:
    """A CNN with batch norm on eight 32x32 images."""
    return Cnn(), (torch.randn(8, 3, 32, 32),)


class Broken(nn.Module):
    """Two halves with a graph break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(256, 256), nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        """A batch."""
        h = F.relu(self.one(x))
        torch._dynamo.graph_break()
        return F.softmax(self.two(h), -1)


def graph_break() -> Made:
    """A network with a graph break."""
    return Broken(), (torch.randn(64, 256),)


class Mixture(nn.Module):
    """A mixture of experts: each token goes through the two best of four, weighted."""

    def __init__(self, width: int = 128, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) / (2 * width) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """A batch of tokens."""
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        dense = torch.zeros(x.shape[0], self.up.shape[0], dtype=x.dtype).scatter(1, chosen, weights)
        each = torch.einsum("ted,edw->tew", F.gelu(torch.einsum("tw,ewd->ted", x, self.up)), self.down)
        return torch.einsum("te,tew->tw", dense, each)


def mixture() -> Made:
    """A mixture of experts on 128 tokens."""
    return Mixture(), (torch.randn(128, 128),)


class Unet(nn.Module):
    """A U-Net of two levels."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()

        def double(a: int, b: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
            )  # fmt: skip

        self.down1, self.down2, self.bottom = double(3, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join2, self.join1 = double(4 * width, 2 * width), double(3 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images."""
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        h = self.up2(self.bottom(F.max_pool2d(b, 2)))
        h = self.join2(torch.cat([b, h], 1))
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return self.out(self.join1(torch.cat([a, h], 1)))


def unet() -> Made:
    """A U-Net on a 48x48 image."""
    return Unet(), (torch.randn(1, 3, 48, 48),)


class Vit(nn.Module):
    """A vision transformer of two layers."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, width, 8, 8), nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 65, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Images."""
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.first.expand(x.shape[0], -1, -1), h], 1) + self.places
        for layer in self.layers:
            h = layer(h)
        return self.out(self.norm(h[:, 0]))


def vit() -> Made:
    """A vision transformer on two 64x64 images."""
    return Vit(), (torch.randn(2, 3, 64, 64),)


class First(nn.Module):
    """The first result of a network of transformers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Tensor:
        """Numbers of tokens."""
        return self.inner(input_ids=ids, return_dict=False)[0]


def bert() -> Made:
    """BERT of transformers, two layers of 128, on two sequences of 64."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return First(BertModel(config, add_pooling_layer=False)), (torch.randint(0, 1000, (2, 64)),)


def gpt2() -> Made:
    """GPT-2 of transformers, two layers of 128, on two sequences of 64."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=1000, n_embd=128, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, use_cache=False,
    )  # fmt: skip
    return First(GPT2LMHeadModel(config)), (torch.randint(0, 1000, (2, 64)),)


NETWORKS: dict[str, Callable[[], Made]] = {
    "mlp": mlp, "resblock": resblock, "decoder": decoder, "convnext": convnext, "gru": gru, "cnn": cnn,
    "graph break": graph_break, "mixture": mixture, "unet": unet, "vit": vit, "bert": bert, "gpt2": gpt2,
}  # fmt: skip
"""By the names of the benchmark's rows."""


def loss_of(result: Tensor) -> Tensor:
    """The loss of a training step."""
    return result.square().mean()
