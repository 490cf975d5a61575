"""A page for each code that errors carry: what it means, and what to do."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from polyc.poly.errors import ArgumentError
from polyc.poly.records import dataclass

FILE = Path(__file__).with_name("error_pages.toml")


@dataclass(frozen=True)
class ErrorPage:
    """What is said of a code: the class of the error, its meaning and a remedy."""

    code: str
    error: str
    meaning: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code} {self.error}\n\n{self.meaning}\n\nWhat to do: {self.remedy}"


@cache
def error_pages() -> dict[str, ErrorPage]:
    """All pages by code, in their order."""
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {code: ErrorPage(code, p["error"], p["meaning"], p["remedy"]) for code, p in data.items()}


def page_of(name: str) -> ErrorPage:
    """The page of a code, or of the class of an error, in letters of either case.

    Raises:
        ArgumentError: there is none.
    """
    for page in error_pages().values():
        if name.lower() in (page.code.lower(), page.error.lower()):
            return page
    raise ArgumentError(f"there is no error '{name:.40}'; codes are {', '.join(error_pages())}")


def markdown(pages: Iterable[ErrorPage]) -> str:
    """docs/errors.md."""
    lines = [
        "# Errors",
        "",
        "Every error of polyc is a `polyc.PolycError` and carries the code of its kind, `error.code`; on a terminal",
        "the command prints it behind the line. `polyc explain-error CODE` prints what stands here. This page is made",
        "by `python -m polyc.graph_driver.explaining.error_pages`.",
    ]
    for page in pages:
        lines += ["", f"## {page.code} {page.error}", "", page.meaning, "", f"**What to do.** {page.remedy}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(error_pages().values()), end="")
