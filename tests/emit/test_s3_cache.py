"""A shared cache in a store that speaks S3: moto's server on this machine (`pip install s3fs "moto[server]"`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from polyc.emit import cache, shared_cache

pytest.importorskip("s3fs", reason='needs s3fs: pip install s3fs "moto[server]"')
server = pytest.importorskip("moto.server", reason='needs moto\'s server: pip install s3fs "moto[server]"')


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    for name, value in {
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "ENDPOINT_URL": f"http://{host}:{port}",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().makedirs("bucket", exist_ok=True)
    shared_cache._opened.cache_clear()
    yield "s3://bucket/polyc"
    shared_cache._opened.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()
    store.stop()


def never() -> bytes:
    raise AssertionError("built twice")


def test_two_machines_share_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    key = cache.make_key("s3")
    monkeypatch.setattr(cache, "_notes", [])
    monkeypatch.setenv("POLYC_CACHE", f"{tmp_path / 'one'},{address}")
    assert cache.cached(key, lambda: b"code") == (b"code", False)
    store = cache.shared()
    assert store is not None and store.writes and store.names()
    monkeypatch.setenv("POLYC_CACHE", f"{tmp_path / 'two'},{address}")
    assert cache.cached(key, never) == (b"code", True)
    assert cache._notes == []


def test_only_one_of_two_machines_claims_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("POLYC_CACHE", f"{tmp_path / 'one'},{address}")
    store = cache.shared()
    assert store is not None
    assert store.claim("ab" * 16)
    assert not store.claim("ab" * 16)
    store.release("ab" * 16)
    assert store.claim("ab" * 16)
