"""`dense<...>` of a type as an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyc.poly.dtypes import DType

MOST_BYTES = 1 << 31  # of a model in one file: protobuf has no larger messages


def from_bytes(data: bytes, dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """An array from its bytes (little-endian, by rows), or from those of one element that fills it; truth values are
    bytes, or bits from the lowest. Raises `ValueError`: their number does not fit."""
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.kind == "bool" and len(data) == (count + 7) // 8 and len(data) != count:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:count]
        return bits.astype(np.bool_).reshape(shape)
    found = np.frombuffer(data, np.uint8) != 0 if dtype.kind == "bool" else np.frombuffer(data, _little(dtype))
    return filled(found.astype(dtype.np), count, shape)


def _little(dtype: DType) -> Any:
    return dtype.np if dtype.name == "bf16" else dtype.np.newbyteorder("<")


def from_numbers(words: Sequence[str], dtype: DType, shape: Sequence[int]) -> np.ndarray:
    """An array from the words of its elements in order, or from that of one element that fills it.

    Words are `true`, integers, decimal fractions, or of a float the bits in hexadecimal. Raises `ValueError`: a word is
    none of these, or their number does not fit.
    """
    count = int(np.prod(shape, dtype=np.int64))
    made = np.array([_number(w, dtype) for w in words], dtype=dtype.np)
    return filled(made, count, shape)


def filled(found: np.ndarray, count: int, shape: Sequence[int]) -> np.ndarray:
    """All elements, or one repeated. Raises `ValueError`: there are others, or more bytes than a model may have."""
    if found.size == 1 and count != 1:
        if count * found.itemsize > MOST_BYTES:
            raise ValueError("more than 2 GiB")
        return np.full(shape, found[0], found.dtype)
    if found.size != count:
        raise ValueError(f"{found.size} elements for {count}")
    return found.reshape(shape)


def _number(word: str, dtype: DType) -> Any:
    if word in ("true", "false"):
        return word == "true"
    if dtype.is_float:
        if word.startswith("0x"):
            bits = int(word, 16).to_bytes(dtype.bytes, "little")
            return np.frombuffer(bits, dtype.np)[0]
        return dtype.np.type(float(word))
    whole = int(word, 0)
    if dtype.kind == "bool":
        return bool(whole)
    return np.array(whole & ((1 << dtype.bits) - 1), np.uint64).astype(dtype.np)
