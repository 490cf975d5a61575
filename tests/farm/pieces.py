"""Pieces of work for farms: functions that workers import."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from polyc.poly.errors import BuildError


def squared(text: str) -> str:
    """The square of a number."""
    return str(int(text) ** 2)


def slowly(text: str) -> str:
    """After a while, with a line in a file for each start."""
    asked = json.loads(text)
    with open(asked["log"], "a") as log:
        log.write(f"{asked['number']} {os.getpid()}\n")
    time.sleep(asked["seconds"])
    return str(asked["number"] ** 2)


def dying(text: str) -> str:
    """Kills its process the first few times."""
    asked = json.loads(text)
    tries = Path(asked["log"])
    with tries.open("a") as log:
        log.write("x")
    if tries.stat().st_size <= asked["times"]:
        os._exit(9)
    return "lived"


def refusing(text: str) -> str:
    """Says why not."""
    raise BuildError(f"no {text}\nin two lines")


def broken(text: str) -> str:
    """A bug."""
    raise ZeroDivisionError(text)


def full(text: str) -> str:
    """A disk that is full."""
    raise OSError(28, "No space left on device")
