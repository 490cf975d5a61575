"""Where the services live that packages use without importing each other (see `polyc.poly.hooks`)."""

from __future__ import annotations

from polyc.poly import hooks


def connect() -> None:
    """Register all services; the modules behind them load on first use."""
    hooks.register("schedule", "polyc.scheduler.schedule:Schedule.of")
    hooks.register("own_instructions", "polyc.emit.targets:own_instructions")
    hooks.register("auto_schedule", "polyc.graph_driver.worker.compile_operator:auto_schedule")
    hooks.register("compile_operator", "polyc.graph_driver.worker.compile_operator:compile_operator")
    hooks.register("further_sizes", "polyc.graph_driver.worker.further_sizes:FurtherSizes")
    hooks.register("build_operator", "polyc.graph_driver.artifacts.operator_files:build_operator")
    hooks.register("known_model", "polyc.graph_driver.known.models:Known")
    hooks.register("narrow_choice", "polyc.graph_driver.narrowing.choice:choose")
    hooks.register("compile_with", "polyc.graph_driver.compile_model:compile_with")
    hooks.register("load_model", "polyc.graph_driver.artifacts.package:load")
    hooks.register("save_model", "polyc.graph_driver.artifacts.package:save")
    hooks.register("pickled_model", "polyc.graph_driver.artifacts.carried:pickled")
    hooks.register("html", "polyc.graph_driver.html.notebook:html_of")
    hooks.register("packed", "polyc.frontend_dsl.pickling:Packed")
    hooks.register("run_scop", "polyc.emit.interpreter.scops:run_scop")
    hooks.register("interrupts", "polyc.emit.run_time.interrupts:handler")
