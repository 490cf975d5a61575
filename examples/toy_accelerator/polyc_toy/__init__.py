"""A toy accelerator behind polyc, simulated: a worked example of a back end (docs/back-ends.md)."""

from polyc_toy.simulator import Counts, ScratchpadError, counting

__all__ = ["Counts", "ScratchpadError", "counting"]
