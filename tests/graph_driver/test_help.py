"""`--help` of every command ends with examples, and each of them is one that the command takes."""

from __future__ import annotations

import argparse
import shlex

import pytest

from polyc.graph_driver.cli.command import parser
from polyc.graph_driver.cli.examples import EXAMPLES


def commands() -> dict[str, argparse.ArgumentParser]:
    return next(a.choices for a in parser()._actions if isinstance(a.choices, dict))


def test_every_command_has_examples() -> None:
    assert set(EXAMPLES) == set(commands())


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_examples_are_taken_and_printed(command: str) -> None:
    text = commands()[command].format_help()
    for line, what in EXAMPLES[command]:
        program, *arguments = shlex.split(line)
        assert program == "polyc" and arguments[0] == command
        parser().parse_args(arguments)
        assert line in text and what in text
