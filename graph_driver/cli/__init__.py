"""The command line: one file a command."""

from graph_driver.cli.command import main

__all__ = ["main"]
