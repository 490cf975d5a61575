"""The command line: one file a command."""

from polyc.graph_driver.cli.command import main

__all__ = ["main"]
