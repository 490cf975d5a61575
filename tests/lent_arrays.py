"""Arrays as other packages hand them over."""

from __future__ import annotations

import numpy as np


class Lends:
    """Another package's array with DLPack only; `device`: DLPack's kind (1: a CPU) and number."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **how: object) -> object:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device
