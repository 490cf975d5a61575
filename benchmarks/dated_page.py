"""Pages that a benchmark writes into a folder of results: Markdown and the same rows as JSON, by date and subject."""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import Any


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """The options that `publish` reads."""
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write a dated page and JSON there")


def publish(options: argparse.Namespace, subject: str, text: str, rows: list[Any]) -> None:
    """Print the page, and write page and rows where the options say (`DATE-cpu-SUBJECT`)."""
    print(text)
    data = json.dumps(rows, indent=1) + "\n"
    if options.json:
        options.json.write_text(data, encoding="utf-8")
    if options.results:
        options.results.mkdir(parents=True, exist_ok=True)
        stem = options.results / f"{datetime.date.today()}-cpu-{subject}"
        stem.with_suffix(".md").write_text(text, encoding="utf-8")
        stem.with_suffix(".json").write_text(data, encoding="utf-8")
