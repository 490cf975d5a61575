"""Optimisers: how parameters change by their gradients. State lies in arrays beside the parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from polyc.graph_driver.training import kernels
from polyc.poly.dtypes import from_numpy
from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

State = Mapping[str, np.ndarray]


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ArgumentError(what)


class Optimiser(ABC):
    """What `Training.step` calls with all parameters of one type in one array."""

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the arrays that it keeps from step to step, each as large as the parameters."""
        return ()

    @abstractmethod
    def update(self, weights: np.ndarray, gradients: np.ndarray, state: State, step: int, scale: float) -> None:
        """Change `weights` and `state` in place, all of one shape `[n]` and type.

        Args:
            step: the number of this step; the first is 1.
            scale: what gradients are multiplied by (1 by the scale of the loss).
        """


@dataclass(frozen=True)
class SGD(Optimiser):
    """Gradient descent, with momentum where it is not 0.

    Args:
        rate: the learning rate, positive.
        momentum: how much of the last step stays, from 0 to below 1.
        nesterov: look ahead.
        decay: weights times this are added to gradients.

    Raises:
        ArgumentError: a number is out of its range.
    """

    rate: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    decay: float = 0.0

    def __post_init__(self) -> None:
        _need(self.rate > 0, f"the learning rate is positive, not {self.rate}")
        _need(0 <= self.momentum < 1, f"momentum is from 0 to below 1, not {self.momentum}")
        _need(self.momentum > 0 or not self.nesterov, "Nesterov's look ahead needs a momentum")

    @property
    def kept(self) -> tuple[str, ...]:
        """The velocity, with momentum."""
        return ("velocity",) if self.momentum else ()

    def update(self, weights: np.ndarray, gradients: np.ndarray, state: State, step: int, scale: float) -> None:
        """As `Optimiser.update`."""
        dtype = from_numpy(weights.dtype)
        if not self.momentum:
            kernels.make_sgd(dtype)(weights, gradients, self.rate, self.decay, scale)
            return
        kernels.make_momentum(dtype, self.nesterov)(
            weights, state["velocity"], gradients, self.rate, self.momentum, self.decay, scale
        )


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam (Kingma and Ba, 1412.6980); weight decay is added to gradients.

    Args:
        rate: the learning rate, positive.
        betas: how much of the means of gradients and of their squares stays.
        epsilon: added to the root.
        decay: weights times this are added to gradients.

    Raises:
        ArgumentError: a number is out of its range.
    """

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: float = 0.0
    decoupled = False

    def __post_init__(self) -> None:
        _need(self.rate > 0, f"the learning rate is positive, not {self.rate}")
        _need(all(0 <= b < 1 for b in self.betas), f"betas are from 0 to below 1, not {self.betas}")

    @property
    def kept(self) -> tuple[str, ...]:
        """Means of gradients and of their squares."""
        return ("mean", "square")

    def update(self, weights: np.ndarray, gradients: np.ndarray, state: State, step: int, scale: float) -> None:
        """As `Optimiser.update`."""
        b1, b2 = self.betas
        kernel = kernels.make_adam(from_numpy(weights.dtype), self.decoupled)
        kernel(
            weights, state["mean"], state["square"], gradients, self.rate, b1, b2, 1 - b1**step, 1 - b2**step,
            self.epsilon, self.decay, scale,
        )  # fmt: skip


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weights decay beside the gradient (Loshchilov and Hutter, 1711.05101)."""

    decay: float = 0.01
    decoupled = True


@dataclass
class LossScaling:
    """A factor of the loss that keeps small gradients of f16 from becoming zero (Micikevicius et al., 1710.03740).

    A step whose gradients are not all finite changes nothing and halves the factor; after `interval` good steps it is
    multiplied by `growth`.
    """

    factor: float = 2.0**16
    growth: float = 2.0
    interval: int = 2000
    good: int = 0

    def after(self, finite: bool) -> None:
        """Change the factor after a step."""
        if not finite:
            self.factor, self.good = self.factor / self.growth, 0
            return
        self.good += 1
        if self.good >= self.interval:
            self.factor, self.good = self.factor * self.growth, 0
