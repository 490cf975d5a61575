"""Every file, module and public name that the pages and docstrings speak of exists."""

import functools
import importlib
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from polyc.graph_driver.cli.command import parser

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("poly", "frontend_dsl", "scheduler", "emit", "graph_driver", "polyc")
FILE = re.compile(r"(?<![\w./*<{-])[\w./*-]*\w\.(?:py|md|toml|yaml|h|c|json|sh)(?![\w(])")
QUOTED_FILE = re.compile(r"`.*\.(?:py|md|toml|yaml|h|c|json|sh)\b.*`")  # on one line, as names are
USERS_OWN = re.compile(r"[A-Z]")  # FILE.py, NAME.toml, A.yaml, DIR/main.c: what a reader puts in
MADE = {  # by a command of the page
    "index.json", "kernel.html", "main.c", "manifest.json", "sources.json", "trace.json",
}  # fmt: skip


def pages() -> list[str]:
    """All Markdown files of the repository."""
    return [f for f in tracked() if f.endswith(".md")]


@functools.cache
def tracked() -> list[str]:
    """All files that belong to the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()


def quoted(text: str) -> Iterator[str]:
    """What stands in backticks, blocks of code left out."""
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def missing_files(text: str, files: list[str]) -> list[str]:
    """The names of files in backticks that end no path of the repository."""
    names = {name for part in quoted(text) for name in FILE.findall(part)}
    wanted = {n for n in names if n not in MADE and not USERS_OWN.search(n.split("/")[0]) and not exists(n)}
    return sorted(n for n in wanted if not any(f"/{f}".endswith(f"/{n}") for f in files) and not list(ROOT.glob(n)))


@pytest.mark.parametrize("page", pages())
def test_files_that_a_page_names_exist(page: str) -> None:
    assert missing_files((ROOT / page).read_text(encoding="utf-8"), tracked()) == []


@pytest.mark.parametrize("page", pages())
def test_modules_that_a_page_runs_exist(page: str) -> None:
    text, files = (ROOT / page).read_text(encoding="utf-8"), tracked()
    modules = re.findall(r"python -m ((?:benchmarks|tests|examples|polyc)(?:\.\w+)*)", text)
    scripts = re.findall(r"python ((?:benchmarks|tests|examples)/[\w./]*\w)", text)
    paths = {m.replace(".", "/").removeprefix("polyc/") for m in modules} | {s.removesuffix(".py") for s in scripts}
    assert sorted(p for p in paths if not {f"{p}.py", f"{p}/__main__.py"} & set(files)) == []


@functools.cache
def options() -> dict[str, set[str]]:
    """The options of each command."""
    choices = next(a.choices for a in parser()._actions if isinstance(a.choices, dict))
    return {name: {o for a in p._actions for o in a.option_strings} for name, p in choices.items()}


def unknown_options(text: str) -> list[str]:
    """Options of `polyc COMMAND ...`, in backticks or as a line of its own, that the command has not."""
    known = options()
    shown = re.findall(r"`polyc ([a-z]+\b[^`]*)`", text) + re.findall(r"(?m)^ *(?:\$ )?polyc ([a-z]+ .*)", text)
    used = [(s.split()[0], re.findall(r"(?<![\w-])--?[a-z][\w-]*", re.split(" [#|] ", s)[0])) for s in shown]
    return [f"{name} {o}" for name, options in used for o in options if o not in known.get(name, ())]


@pytest.mark.parametrize("page", pages())
def test_options_of_the_commands_that_a_page_shows_exist(page: str) -> None:
    assert unknown_options((ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", pages())
def test_python_names_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    names = {n for part in quoted(text) for n in re.findall(r"(?<![\w./-])polyc(?:\.[A-Za-z_]\w*)+", part)}
    assert [n for n in sorted(names) if not exists(n)] == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", pages())
def test_links_and_pictures_of_a_page_exist(page: str) -> None:
    text = re.sub(r"```.*?```|`[^`\n]+`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    places = {link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link} - {""}
    assert sorted(p for p in places if not (ROOT / page).parent.joinpath(p).exists()) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_that_docstrings_and_comments_name_exist(folder: str) -> None:
    files = tracked()
    wrong = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not QUOTED_FILE.search(path.read_text(encoding="utf-8")):
            continue  # tokens cost more than all the rest
        if names := missing_files(prose(path), files):
            wrong[str(path.relative_to(ROOT))] = names
    assert wrong == {}


def prose(path: Path) -> str:
    """The docstrings and comments of a Python file."""
    with tokenize.open(path) as source:
        tokens = list(tokenize.generate_tokens(source.readline))
    comments = [t.string for t in tokens if t.type == tokenize.COMMENT]
    return "\n".join(comments + [t.string for t in tokens if t.type == tokenize.STRING and t.string.startswith('"""')])


def test_a_name_of_nothing_is_found() -> None:
    assert unknown_options("`polyc run x --chekc`\n    $ polyc bulid -o out") == ["run --chekc", "bulid -o"]
    files = tracked()
    assert missing_files("`nobody.py` and `scheduler/core.py`, `emit/nowhere/core.py`", files) == [
        "emit/nowhere/core.py",
        "nobody.py",
    ]
    assert exists("polyc.scheduler.core.Core") and not exists("polyc.scheduler.core.Nothing")
