"""Whether the elements of an array have changed: a number that follows from them, at the speed of memory.

A multilinear hash (Carter and Wegman, "Universal classes of hash functions", JCSS 1979) over 64-bit words with odd
random factors: one changed word always gives another number, other changes do but for one in 2^63.
"""

from __future__ import annotations

import numpy as np

WIDE = 4096
"""Words that share one round of factors."""
_FACTORS = np.random.Generator(np.random.PCG64(20260101)).integers(0, 1 << 63, WIDE, dtype=np.uint64) * 2 + 1


def digest_of(array: np.ndarray) -> int:
    """A number that follows from the elements of an array of any numeric type, in this process."""
    whole = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = whole[: whole.size // 8 * 8].view(np.uint64)
    rest = int.from_bytes(whole[words.size * 8 :].tobytes(), "little")
    while words.size > WIDE:
        rows = words[: words.size // WIDE * WIDE].reshape(-1, WIDE) @ _FACTORS
        words = np.concatenate([rows, words[rows.size * WIDE :]])
    return hash((int(words @ _FACTORS[: words.size]), rest, whole.size))


def frozen(array: np.ndarray) -> bool:
    """Whether nobody can change the elements: neither the array nor what it is a view of can be written to."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes)
