"""Where the services live that packages use without importing each other (see `poly.hooks`)."""

from __future__ import annotations

from poly import hooks


def connect() -> None:
    """Register all services; the modules behind them load on first use."""
    hooks.register("schedule", "scheduler.schedule:Schedule.start")
    hooks.register("auto_schedule", "graph_driver.compile_operator:auto_schedule")
    hooks.register("compile_operator", "graph_driver.compile_operator:compile_operator")
