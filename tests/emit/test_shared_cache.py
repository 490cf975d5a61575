"""The part of the cache that machines share: folders, memory, HTTP, damage, signatures, machines at once."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from polyc.emit import cache, shared_cache, signatures

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_notes", [])
    for name in ("POLYC_TRUST", "POLYC_CACHE_KEY", "POLYC_CACHE_WRITE", "POLYC_CACHE_LOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shared_cache._opened.cache_clear()


@pytest.fixture(params=["file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/shared"
    else:
        yield "memory://shared"
        fsspec.filesystem("memory").store.clear()


class Machines:
    """Machines with folders of their own that share an address."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
        self.tmp_path, self.monkeypatch, self.address = tmp_path, monkeypatch, address

    def be(self, name: str, **more: str) -> None:
        for variable in ("POLYC_TRUST", "POLYC_CACHE_KEY", "POLYC_CACHE_WRITE"):
            self.monkeypatch.delenv(variable, raising=False)
        for variable, value in more.items():
            self.monkeypatch.setenv(variable, value)
        self.monkeypatch.setenv("POLYC_CACHE", f"{self.tmp_path / name},{self.address}")


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> Machines:
    return Machines(tmp_path, monkeypatch, address)


def never() -> bytes:
    raise AssertionError("built twice")


def test_addresses() -> None:
    parts = shared_cache.parts_of
    assert parts("/a/b") == ("/a/b", "") and parts("") == ("", "") and parts("a,b") == ("a,b", "")
    assert parts("s3://bucket/x") == ("", "s3://bucket/x")
    assert parts("/a,b,file:///c") == ("/a,b", "file:///c")
    assert parts("/a,simplecache::s3://b") == ("/a", "simplecache::s3://b")


def test_what_one_machine_builds_others_find(machines: Machines) -> None:
    key = cache.make_key("k")
    machines.be("one")
    assert cache.cached(key, lambda: b"code") == (b"code", False)
    machines.be("two")
    assert cache.cached(key, never) == (b"code", True)
    machines.be("two", POLYC_CACHE_WRITE="0")
    store = cache.shared()
    assert store is not None and not store.writes
    store.files.rm(store.root, recursive=True)  # from now on it is here
    assert cache.get(key) == b"code" and cache.notes() == ()


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"", lambda raw: raw[:-3] + b"???"])
def test_damaged_entries_are_not_used(machines: Machines, damage) -> None:
    key = cache.make_key("k")
    machines.be("one")
    cache.put(key, b"good bytes")
    store = cache.shared()
    assert store is not None
    (name,) = store.names()
    store.files.pipe_file(store.path(name), damage(store.files.cat_file(store.path(name))))
    machines.be("two")
    assert cache.cached(key, lambda: b"good bytes") == (b"good bytes", False)
    assert "damaged" in cache.notes()[0]


def test_entries_are_written_once(machines: Machines) -> None:
    key = cache.make_key("k")
    machines.be("one")
    cache.put(key, b"first")
    machines.be("two")
    cache.put(key, b"second")
    machines.be("three")
    assert cache.get(key) == b"first"
    store = cache.shared()
    assert store is not None and len(store.names()) == 1
    assert not [p for p in store.files.find(store.root) if ".new-" in p or p.endswith(".claim")]


def test_only_one_of_two_builds(machines: Machines) -> None:
    key, built = cache.make_key("k"), []
    machines.be("one")
    inside, go = threading.Event(), threading.Event()

    def slowly() -> bytes:
        built.append(1)
        inside.set()
        go.wait(20)
        return b"code"

    first = threading.Thread(target=lambda: cache.cached(key, slowly))
    first.start()
    inside.wait(20)
    threading.Timer(0.3, go.set).start()
    assert cache.cached(key, never) == (b"code", True)  # waits for the other
    first.join()
    assert built == [1]


def test_a_claim_of_one_that_died_holds_nobody_up_for_long(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache.make_key("k")
    machines.be("dead")
    store = cache.shared()
    assert store is not None and store.claim(f"{key}.o")
    machines.be("two")
    monkeypatch.setattr(shared_cache.Shared.wait, "__defaults__", (0.3,))
    start = time.monotonic()
    assert cache.cached(key, lambda: b"code") == (b"code", False)
    assert time.monotonic() - start < 5.0
    assert store.claim("other") and store.claim(f"{key}.o")  # it is gone


def test_a_failed_build_takes_its_claim_back(machines: Machines) -> None:
    key = cache.make_key("k")
    machines.be("one")
    with pytest.raises(ZeroDivisionError):
        cache.cached(key, lambda: bytes(1 // 0))
    machines.be("two")
    assert cache.cached(key, lambda: b"code") == (b"code", False)


PROGRAM = """
import sys, time
from polyc.emit import cache
for k in range(12):
    cache.cached(cache.make_key(str(k)), lambda: (time.sleep(0.02), b"x" * 5000)[1])
assert cache.notes() == (), cache.notes()
"""


def test_processes_at_the_same_time_build_nothing_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={
                **os.environ, "POLYC_CACHE": f"{tmp_path}/own{k},file://{tmp_path}/shared", "POLYC_CACHE_LOG": str(log),
            },
        )
        for k in range(4)
    ]  # fmt: skip
    assert [p.wait(60) for p in running] == [0] * 4
    built = Counter(line.split()[1] for line in log.read_text().splitlines())
    assert len(built) == 12 and set(built.values()) == {1}


def test_one_of_many_has_the_claim(machines: Machines) -> None:
    """All at once, many times: what looks whether a file is there and then writes it has two owners now and then."""
    machines.be("one")
    store = cache.shared()
    assert store is not None
    with ThreadPoolExecutor(8) as pool:
        for k in range(200):
            start = threading.Barrier(8)

            def claimed(name: str, start: threading.Barrier = start) -> bool:
                start.wait()
                return store.claim(name)

            assert sum(pool.map(claimed, [f"k{k}.o"] * 8)) == 1


def test_who_waits_leaves_no_claim(machines: Machines) -> None:
    key = cache.make_key("k")
    machines.be("one")
    store = cache.shared()
    assert store is not None
    cache.cached(key, lambda: b"code")
    (name,) = store.names()
    assert store.wait(name) is not None
    assert store.claim(name)


def test_http_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp")
    key = cache.make_key("k")
    monkeypatch.setenv("POLYC_CACHE", f"{tmp_path}/one,file://{tmp_path}/shared")
    cache.put(key, b"code")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "shared"))
    monkeypatch.setattr(handler.func, "log_message", lambda *_: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("POLYC_CACHE", f"{tmp_path}/two,http://127.0.0.1:{server.server_port}")
        assert cache.cached(key, never) == (b"code", True)
        assert cache.cached(cache.make_key("other"), lambda: b"y") == (b"y", False)  # and not written
        server.shutdown()
    assert cache.notes() == ()


@pytest.mark.parametrize("address", ["nonsense://x", "file:///proc/1/nowhere", "http://127.0.0.1:9"])
def test_a_store_that_does_not_work_costs_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("POLYC_CACHE", f"{tmp_path}/own,{address}")
    for k in range(5):
        assert cache.cached(cache.make_key(str(k)), lambda: b"x") == (b"x", False)
    assert cache.notes() and all("shared cache" in note and "\n" not in note for note in cache.notes())


def test_a_store_that_hangs_costs_a_few_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cache, "SECONDS", 0.05)
    monkeypatch.setenv("POLYC_CACHE", f"{tmp_path}/own,memory://hangs")
    store = cache.shared()
    assert store is not None
    monkeypatch.setattr(store.files, "cat_file", lambda path: time.sleep(5))
    start = time.monotonic()
    for k in range(20):
        assert cache.cached(cache.make_key(str(k)), lambda: b"x") == (b"x", False)
    assert time.monotonic() - start < 3.0 and "no answer" in cache.notes()[0]


# ---- signatures --------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    pytest.importorskip("cryptography")
    for name in ("ours", "theirs"):
        signatures.new_key(tmp_path / name)
    return {"own": str(tmp_path / "ours"), "theirs": str(tmp_path / "theirs"), "public": str(tmp_path / "ours.pub")}


def test_signed_entries_are_used_and_others_refused(machines: Machines, keys: dict[str, str]) -> None:
    signed, unsigned, foreign = (cache.make_key(k) for k in ("signed", "unsigned", "foreign"))
    machines.be("builder", POLYC_CACHE_KEY=keys["own"])
    cache.put(signed, b"good")
    machines.be("stranger")
    cache.put(unsigned, b"evil")
    machines.be("enemy", POLYC_CACHE_KEY=keys["theirs"])
    cache.put(foreign, b"evil")
    machines.be("user", POLYC_TRUST=keys["public"])
    assert cache.get(signed) == b"good" and cache.get(unsigned) is None and cache.get(foreign) is None
    assert any("no trusted key has signed" in note for note in cache.notes())
    assert cache.cached(unsigned, lambda: b"own") == (b"own", False)


def test_a_signature_is_of_one_entry(machines: Machines, keys: dict[str, str]) -> None:
    machines.be("builder", POLYC_CACHE_KEY=keys["own"])
    one, two = cache.make_key("one"), cache.make_key("two")
    cache.put(one, b"1")
    store = cache.shared()
    assert store is not None
    for ending in ("", f".{store.keys.own}.sig"):  # under another name, with its signature
        place = store.path(f"{two}.o") + ending
        store.files.makedirs(place.rpartition("/")[0], exist_ok=True)
        store.files.pipe_file(place, store.files.cat_file(store.path(f"{one}.o") + ending))
    machines.be("user", POLYC_TRUST=keys["public"])
    assert cache.get(one) == b"1" and cache.get(two) is None


def test_keys_that_cannot_be_read_trust_nobody(machines: Machines, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    machines.be("one")
    cache.put(cache.make_key("k"), b"x")
    (tmp_path / "bad.pub").write_text("no key")
    for place in ("bad.pub", "missing.pub"):
        machines.be("two", POLYC_TRUST=str(tmp_path / place))
        assert cache.get(cache.make_key("k")) is None
        assert "is not used" in cache.notes()[-1]


def test_private_keys_are_for_their_owner(keys: dict[str, str], tmp_path: Path) -> None:
    assert Path(keys["own"]).stat().st_mode & 0o077 == 0
    with pytest.raises(signatures.Refused, match="cannot write"):
        signatures.new_key(Path(keys["own"]))
    with pytest.raises(signatures.Refused, match="is no public key"):
        signatures.public_key(Path(keys["own"]))


# ---- models and the command --------------------------------------------------------------------


def test_a_finished_program_comes_from_another_machine(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    import onnx

    from polyc.graph_driver import compile_model as front
    from polyc.graph_driver.known import key

    monkeypatch.setenv("POLYC_PROGRAMS", "1")
    monkeypatch.setattr(key, "identity", lambda: "this compiler")
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x) => (float[4] y) { a = Sigmoid(x)  y = Add(a, x) }
    """)
    machines.be("one")
    x = {"x": np.arange(4, dtype="f")}
    first = front.compile_model(model)
    machines.be("two")
    with monkeypatch.context() as patch:
        patch.setattr(front, "_anew", never)
        second = front.compile_model(model)
    assert second.report().made
    np.testing.assert_array_equal(first(x)["y"], second(x)["y"])
    assert not [note for note in cache.notes() if "shared" in note]


def test_the_command_makes_keys_signs_and_trusts(
    machines: Machines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography")
    from polyc.graph_driver.cli import main

    key, own = cache.make_key("k"), str(tmp_path / "own")
    machines.be("one")
    assert main(["cache", "key", own]) == 0 and main(["cache", "trust", f"{own}.pub"]) == 0
    machines.be("builder", POLYC_CACHE_KEY=own)
    cache.put(key, b"code")
    machines.be("two")  # trusts by the user's configuration now, and signs nothing
    shared_cache._opened.cache_clear()
    assert cache.get(key) == b"code"
    store = cache.shared()
    assert store is not None and not store.writes
    for path in store.files.find(store.root):
        if path.endswith(".sig"):
            store.files.rm_file(path)
    machines.be("three")
    assert cache.get(key) is None
    assert main(["cache", "sign", own]) == 0 and "signed   1 entries" in capsys.readouterr().out
    assert cache.get(key) == b"code"
    assert main(["cache", "sign"]) == 2 and main(["cache", "list", own]) == 2
    assert main(["cache", "sign", f"{own}.pub"]) == 1 and "is no private key" in capsys.readouterr().err
