"""Models made narrow: calibration, quantisation, what it costs in accuracy (`polyc quantize`)."""

from polyc.graph_driver.narrowing.quantize import Quantised, quantize

__all__ = ["Quantised", "quantize"]
