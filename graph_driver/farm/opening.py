"""A farm for a block of code: what commands and programs use."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from polyc.graph_driver.farm.cluster import connected
from polyc.graph_driver.farm.farm import Farm


@contextlib.contextmanager
def farm_at(where: str) -> Iterator[Farm]:
    """The farm at the address of a scheduler, or `local:N`. What it has to remark is printed on stderr in the end.

    Raises:
        OptionError: `where` is neither. BuildError: Dask is not installed, or nobody answers.
    """
    with connected(where) as client:
        farm = Farm(client, where)
        try:
            yield farm
        finally:
            farm.drop()
            for note in dict.fromkeys(farm.notes):
                print(f"polyc: {note}", file=sys.stderr)
