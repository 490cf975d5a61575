"""The disk cache: hits, damage, concurrency, folders that cannot be written, size bound."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from polyc.emit import cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLYC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_notes", [])
    return tmp_path / "cache"


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*"))


def test_built_once_then_found(folder: Path) -> None:
    built = []

    def build() -> bytes:
        built.append(1)
        return b"object code"

    key = cache.make_key("text", "target")
    assert cache.cached(key, build) == (b"object code", False)
    assert cache.cached(key, build) == (b"object code", True)
    assert len(built) == 1 and len(entries(folder)) == 1 and cache.notes() == ()


def test_keys_separate_parts_and_hold_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache.make_key("ab", "c"), cache.make_key("a", "bc"), cache.make_key("abc"), cache.make_key(b"ab", "c")}
    assert len(keys) == 3
    before = cache.make_key("x")
    monkeypatch.setattr(cache, "package_versions", lambda: "polyc=999")
    assert cache.make_key("x") != before


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda raw: raw[:-1],
    lambda raw: b"",
    lambda raw: raw[:-3] + b"???",
    lambda raw: raw + b"x",
    lambda raw: b"other" + raw[5:],
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_rebuilt(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    key = cache.make_key("k")
    cache.put(key, b"good bytes")
    (path,) = entries(folder)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(key) is None
    assert "damaged" in cache.notes()[0]
    assert cache.cached(key, lambda: b"good bytes") == (b"good bytes", False)
    assert cache.get(key) == b"good bytes"


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else False, reason="root may write everywhere")
def test_a_read_only_folder_works_and_is_noted_once(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o500)
    for k in range(3):
        assert cache.cached(cache.make_key(str(k)), lambda: b"x") == (b"x", False)
    assert len(cache.notes()) == 1


def test_a_folder_that_is_a_file_works_and_is_noted_once(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("not a folder")
    for k in range(3):
        assert cache.cached(cache.make_key(str(k)), lambda: b"x") == (b"x", False)
    assert 1 <= len(cache.notes()) <= 2 and all("cannot be" in n for n in cache.notes())


def test_cleaning_removes_the_oldest(folder: Path) -> None:
    keys = [cache.make_key(str(k)) for k in range(10)]
    for age, key in enumerate(keys):
        cache.put(key, b"z" * 1000)
        os.utime(next(folder.glob(f"??/{key}.o")), (1000 + age, 1000 + age))
    cache.clean(limit=3500)
    assert [cache.get(k) is not None for k in keys] == [False] * 7 + [True] * 3


def test_threads_and_processes_share_it(folder: Path) -> None:
    code = (
        "from emit import cache\n"
        "for k in range(200):\n"
        "    body, _ = cache.cached(cache.make_key(str(k % 20)), lambda: str(k % 20).encode() * 5000)\n"
        "    assert body == str(k % 20).encode() * 5000\n"
        "assert cache.notes() == ()\n"
    )
    root = Path(__file__).resolve().parents[2]
    others = [subprocess.Popen([sys.executable, "-c", code], cwd=root, env=os.environ.copy()) for _ in range(2)]
    failures: list[BaseException] = []

    def work() -> None:
        try:
            exec(code, {})
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures and all(p.wait() == 0 for p in others)
    assert len(entries(folder)) == 20
