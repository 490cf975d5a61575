"""Ranks and what joins them, as numbers that times follow from."""

from __future__ import annotations

import re
from dataclasses import replace

from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATE = re.compile(r"([\d.eE+-]+)\s*([kmgt]?)b/s", re.IGNORECASE)
_TIME = re.compile(r"([\d.eE+-]+)\s*(us|ms|ns|s)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Network:
    """A message of n bytes takes `latency + n / bandwidth` (seconds, bytes a second; Hockney, The communication
    challenge for MPP, 1994); each rank sends one at a time and receives one at a time. `flops` (a second) and `memory`
    (bytes a second) are those of one rank, and so are `sums`, the bytes a second of what came from others that it adds
    up (no time at all where nobody has measured it). The defaults are one core of a server and a 100 Gbit Ethernet."""

    bandwidth: float = 12.5e9
    latency: float = 5e-6
    flops: float = 1e11
    memory: float = 2e10
    sums: float = float("inf")

    @staticmethod
    def of(what: Network | str | float | None) -> Network:
        """From a bandwidth in bytes a second, a text as `10 GB/s` or `10 GB/s, 20 us`, or None.

        Raises:
            ArgumentError: it is none of these.
        """
        if isinstance(what, Network):
            return what
        if what is None:
            return Network()
        if isinstance(what, int | float) and what > 0:
            return Network(bandwidth=float(what))
        rate = _RATE.search(what) if isinstance(what, str) else None
        if rate is None:
            raise ArgumentError(f"network={what!r}: give a polyc Network, bytes a second, or a text as '10 GB/s, 5 us'")
        time = _TIME.search(str(what)[: rate.start()] + str(what)[rate.end() :])
        made = Network(bandwidth=float(rate[1]) * _UNITS[rate[2].lower()])
        return replace(made, latency=float(time[1]) * _SECONDS[time[2]]) if time else made

    def time(self, messages: int, nbytes: float) -> float:
        """Seconds for messages that one rank sends one after the other, of so many bytes together."""
        return messages * self.latency + nbytes / self.bandwidth

    def work(self, flops: float, nbytes: float) -> float:
        """Seconds for operations and bytes of memory of one rank. (They are added up, as in the model of one core's
        kernels: `polyc.scheduler.cost.model`.)"""
        return flops / self.flops + nbytes / self.memory
