"""Errors about graphs and their nodes."""

from __future__ import annotations

from polyc.poly.errors import PolycError


class Unsupported(PolycError):
    """This form of the operator has no loops in the library; the text says why."""

    code = "P406"


class GraphError(PolycError):
    """A graph that breaks a rule: a bug of a pass, found by `polyc.graph_driver.verifying.verify`."""

    code = "P408"
