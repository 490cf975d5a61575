"""The numbers that tensor cores take for f32: 8 bits of exponent, 10 of fraction ("tf32")."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_EXPONENT = np.uint32(0x7F800000)
_HALF = np.uint32(0x1000)  # of the last bit that stays
_KEPT = np.uint32(0xFFFFE000)


def rounded_to_tf32(values: Any) -> NDArray[np.float32]:
    """f32 numbers rounded to the nearest with 10 bits of fraction, ties away from zero: `cvt.rna.tf32.f32` of PTX.

    Infinities and NaNs stay; what rounds beyond the largest becomes infinite.
    """
    bits = np.asarray(values, np.float32).view(np.uint32)
    finite = (bits & _EXPONENT) != _EXPONENT
    return np.where(finite, (np.where(finite, bits, 0) + _HALF) & _KEPT, bits).view(np.float32)
