"""`polyc explain-error`: what an error's code means, and what to do."""

from __future__ import annotations

import argparse

from polyc.graph_driver.explaining.error_pages import error_pages, page_of


def explain_error_command(arguments: argparse.Namespace) -> int:
    """Print the page of a code, or without one a line for each. Raises `ArgumentError`: there is no such code."""
    if arguments.code is None:
        for page in error_pages().values():
            print(f"{page.code}  {page.error:18s} {page.meaning.split('. ')[0].rstrip('.')}")
    else:
        print(page_of(arguments.code))
    return 0
