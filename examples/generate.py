"""Text from a decoder with weights of 4 bits, token by token: greedy, or sampled with a seed.

The decoder is made here (`examples/decoder.py`, random weights), compiled once for any batch, any rows and any length
of the caches, which grow where they lie (`polyc.Growing`). With PyTorch installed, its greedy text is compared with
what the same weights give there, token by token.
Prints tokens, tokens in a second, and the share of the memory's read bandwidth that the weights of a token take.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import polyc
from examples.decoder import EPSILON, Decoder, Sizes, build, empty_caches

PROMPT = (11, 7, 42, 300)
Choose = Callable[[np.ndarray], int]


def greedy(logits: np.ndarray) -> int:
    """The likeliest token."""
    return int(logits.argmax())


def sampled(seed: int, temperature: float) -> Choose:
    """A token by its probability at a temperature; the same text for the same seed."""
    rng = np.random.default_rng(seed)

    def choose(logits: np.ndarray) -> int:
        shares = np.exp((logits - logits.max()).astype(np.float64) / temperature)
        return int(rng.choice(len(logits), p=shares / shares.sum()))

    return choose


def generate(model: Any, sizes: Sizes, prompt: list[int], tokens: int, choose: Choose) -> tuple[list[int], float]:
    """`tokens` new ones after the prompt, and the seconds that they took after the first one.

    The caches are empty at first; each call writes its rows behind those that are there.
    """
    model.start(empty_caches(sizes, 1, 0))
    text, rows, start = list(prompt), list(prompt), time.perf_counter()
    for k in range(tokens):
        mask = np.ones((1, len(text)), np.int64)
        feeds = {"ids": np.array([rows]), "last": np.array([len(text) - 1], np.int32), "mask": mask}
        text.append(choose(model(feeds)["logits"][0, -1]))
        rows = text[-1:]
        if k == 0:
            start = time.perf_counter()
    return text[len(prompt) :], time.perf_counter() - start


def torch_greedy(made: Decoder, prompt: list[int], tokens: int) -> list[int]:
    """The same from PyTorch, the whole text anew for each token."""
    import torch
    from torch.nn import functional as F

    z, w = made.sizes, {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in made.dequantised.items()}

    def norm(x: Any, name: str) -> Any:
        return F.rms_norm(x, (z.hidden,), w[name], EPSILON)

    def turned(x: Any) -> Any:
        angles = torch.outer(torch.arange(x.shape[1]), 10000.0 ** (-torch.arange(z.head // 2) * 2 / z.head))
        cosine, sine = angles.cos(), angles.sin()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cosine - b * sine, a * sine + b * cosine], -1)

    def heads(x: Any, count: int) -> Any:
        return x.reshape(-1, count, z.head).transpose(0, 1)

    def layer(k: int, x: Any, skip: Any) -> tuple[Any, Any]:
        name, share = f"layer{k}", z.heads // z.groups
        q, key, value = (heads(x @ w[f"{name}.{n}"], c) for n, c in (("q", z.heads), ("k", z.groups), ("v", z.groups)))
        key, value = (t.repeat_interleave(share, 0) for t in (turned(key), value))
        mixed = F.scaled_dot_product_attention(turned(q)[None], key[None], value[None], is_causal=True)[0]
        skip = skip + mixed.transpose(0, 1).reshape(-1, z.hidden) @ w[f"{name}.o"]
        x = norm(skip, f"{name}.between")
        skip = skip + (F.silu(x @ w[f"{name}.gate"]) * (x @ w[f"{name}.up"])) @ w[f"{name}.down"]
        return norm(skip, f"{name}.after"), skip

    text = list(prompt)
    for _ in range(tokens):
        skip = w["table"][torch.tensor(text)]
        x = norm(skip, "first")
        for k in range(z.layers):
            x, skip = layer(k, x, skip)
        text.append(int((x[-1] @ w["table"].T).argmax()))
    return text[len(prompt) :]


def read_bandwidth() -> float:
    """Bytes a second that one thread reads of 256 MB, the best of a few times."""
    data = np.ones(1 << 26, np.float32)
    best = min(_seconds(data) for _ in range(5))
    return data.nbytes / best


def _seconds(data: np.ndarray) -> float:
    start = time.perf_counter()
    data.max()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the weights, and of the sampled text")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--level", type=int, default=0, help="accuracy_level of the products: 4 for rows in 8 bits")
    options = parser.parse_args()
    sizes = Sizes(hidden=options.hidden, layers=options.layers, inner=2 * options.hidden, level=options.level)
    made, prompt = build(sizes, options.seed, grows=True), list(PROMPT)
    model = polyc.Growing(made.model, threads=1, symbolic=True)
    text, seconds = generate(model, sizes, prompt, options.tokens, greedy)
    print("greedy: ", *text)
    if options.level == 0 and find_spec("torch"):
        same = torch_greedy(made, prompt, options.tokens) == text
        print("PyTorch:", "the same tokens" if same else "other tokens")
        if not same:
            sys.exit("the greedy text is not PyTorch's")
    again, _ = generate(model, sizes, prompt, options.tokens, sampled(options.seed, options.temperature))
    print("sampled:", *again)
    each = seconds / (options.tokens - 1)
    share = made.weight_bytes / each / read_bandwidth()
    print(f"{1 / each:.0f} tokens a second; each reads {made.weight_bytes / 1e6:.1f} MB of weights, {share:.0%} of the")
    print("memory's read bandwidth")
    print(*(str(s) for s in model.model.specialisations()), sep="\n")


if __name__ == "__main__":
    main()
