"""Late wiring between packages that must not import each other.

`polyc.graph_driver.wiring` registers where a service lives ("module:attribute"); the method that needs
it resolves it on first use. So `Scop.schedule()` works without `poly` knowing `scheduler`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from polyc.poly.errors import PolycError

_where: dict[str, str] = {}


class Interrupts(Protocol):
    """The service `interrupts`: a native handler of SIGINT (`polyc.emit.run_time.interrupts`)."""

    def knows_isl(self, context: Any) -> bool:
        """Whether it can tell isl to give up."""

    def arm(self) -> None:
        """Handle SIGINT from here on."""

    def disarm(self) -> None:
        """Leave SIGINT to whoever had it before."""

    def seen(self) -> bool:
        """Whether there was one since `arm`."""


def register(service: str, target: str) -> None:
    """Say that `service` is the attribute `target` ("package.module:name")."""
    _where[service] = target


def registered(service: str) -> bool:
    """Whether `resolve` finds it."""
    return service in _where


def resolve(service: str) -> Any:
    """The object behind `service`; imports its module now. Raises `PolycError`: nobody has registered it."""
    if service not in _where:
        raise PolycError(f"the service '{service}' is not wired up: write 'import polyc' first")
    module, _, attr = _where[service].partition(":")
    found: Any = import_module(module)
    for part in attr.split("."):
        found = getattr(found, part)
    return found
