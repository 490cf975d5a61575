"""One model of `polyc bench` in a process of its own, on a worker of a farm: a line of JSON in, the row out."""

from __future__ import annotations

import argparse
import base64
import json
import os
import tempfile
from pathlib import Path

from polyc.graph_driver.worker.apart import begin
from polyc.poly.errors import PolycError
from polyc.poly.words import first_line


def main() -> None:
    """Answer the line on stdin."""
    from polyc.graph_driver import wiring
    from polyc.graph_driver.cli.bench import row_of

    line, out = begin()
    wiring.connect()
    data = json.loads(line)
    with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
        path = Path(folder) / Path(data["name"]).name
        path.write_bytes(base64.b64decode(data["file"]))
        try:
            row = row_of(argparse.Namespace(**data["options"]), path, {})
        except PolycError as error:
            row = {"error": first_line(error)}
    with os.fdopen(out, "w") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
