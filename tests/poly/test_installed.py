"""Versions of packages read from folders are those that `importlib.metadata` says; islpy gets its own."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from polyc.poly import installed


@pytest.mark.parametrize("name", ["numpy", "llvmlite", "islpy", "ml_dtypes", "ml-dtypes", "PyTest", "no-such-package"])
def test_versions_are_those_of_importlib(name: str) -> None:
    try:
        expected = metadata.version(name)
    except metadata.PackageNotFoundError:
        expected = None
    assert installed.version(name) == expected


@pytest.mark.parametrize("entry", ["thing-1.0-py3.11.egg-info", "thing.egg-link", "thing.egg", "strange.dist-info"])
def test_what_folders_do_not_say_is_asked_of_importlib(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / entry).mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed._folders(tuple(sys.path)) is None
    assert installed.version("numpy") == metadata.version("numpy")


def test_the_first_folder_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "Some_Thing-2.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: Some.Thing\nVersion: 2.5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed.version("some-thing") == metadata.version("some-thing") == "2.5"


def test_a_package_that_lies_beside_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "some_thing.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: some-thing\nVersion: 2.5\n\nVersion: 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed.version("some-thing") == metadata.version("some-thing") == "2.5"
    (folder / "PKG-INFO").unlink()
    assert installed.version("no-such-package") is None


def said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout


def test_islpy_says_the_same_with_and_without_polyc() -> None:
    ask = "import islpy; from islpy import version as v; print(islpy.__version__, islpy.VERSION, islpy.version is v,"
    ask += " v.VERSION, v.VERSION_TEXT, v.VERSION_STATUS)"
    assert said(f"import polyc; {ask}") == said(ask)


def test_importlib_is_asked_once_until_python_looks_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = []
    monkeypatch.setattr(metadata, "version", lambda name: asked.append(name) or "1.0")
    assert [installed.version("some-thing") for _ in range(3)] == ["1.0"] * 3
    assert asked == ["some-thing"]
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    assert installed.version("some-thing") == "1.0"
    assert asked == ["some-thing"] * 2
