"""A content-addressed cache on disk for compiled objects.

The key is a hash of everything that can change the bytes: source text, target, options and
the versions of polyc, llvmlite and the cache format. Entries carry a checksum; a damaged one
is removed and rebuilt. Writes are atomic (a temporary file renamed into place), so that
concurrent processes never see half an entry. A folder that cannot be written turns the
cache off and says so once. Under the local folder there may be a store that many machines
share (`polyc.emit.shared_cache`): what is not here is looked for there, what is built goes
into both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from polyc.poly.errors import BuildError
from polyc.poly.installed import version

if TYPE_CHECKING:
    from polyc.emit.shared_cache import Shared

FORMAT = 2
MAGIC = b"polyc-cache-1\n"
LIMIT_BYTES = 4 << 30
KERNELS = 4  # one part in so many is for kernels, the others for finished programs (`polyc.graph_driver.known`)
SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(?:I?B)?")
CLEAN_EVERY = 256  # writes of this process between two looks at the size

_notes: list[str] = []
_writes = 0


def cache_folder() -> Path:
    """The local folder of `$POLYC_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("POLYC_CACHE", "")
    if "://" in chosen:
        from polyc.emit.shared_cache import parts_of

        chosen = parts_of(chosen)[0]
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("polyc"))


def shared() -> Shared | None:
    """The store that this machine shares with others; None: `$POLYC_CACHE` names none."""
    if "://" not in os.environ.get("POLYC_CACHE", ""):
        return None
    from polyc.emit import shared_cache

    return shared_cache.shared(note)


def limit_bytes() -> int:
    """How large the cache may get: `POLYC_CACHE_SIZE` (bytes, or with K, M, G or T behind), else 4 GiB.

    Raises:
        BuildError: `POLYC_CACHE_SIZE` is no size.
    """
    text = os.environ.get("POLYC_CACHE_SIZE", "").strip()
    if not text:
        return LIMIT_BYTES
    found = SIZE.fullmatch(text.upper())
    if found is None:
        raise BuildError(f"POLYC_CACHE_SIZE is '{text}': it must be a number of bytes, or one with K, M, G or T behind")
    return int(float(found[1]) * (1 << 10 * "_KMGT".index(found[2] or "_")))


def notes() -> tuple[str, ...]:
    """What went wrong with the cache in this process (each said once)."""
    return tuple(_notes)


def note(text: str) -> None:
    """Say something that went wrong, once."""
    if text not in _notes:
        _notes.append(text)


def package_versions() -> str:
    """Versions that are part of every key."""
    return ",".join(f"{name}={version(name) or 'none'}" for name in ("polyc", "llvmlite", "islpy", "cgen"))


def make_key(*parts: str | bytes) -> str:
    """The hash of the parts, the versions and the format (hexadecimal)."""
    h = hashlib.sha256(f"{FORMAT};{package_versions()}".encode())
    for p in parts:
        data = p.encode() if isinstance(p, str) else p
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


def _path(key: str, suffix: str) -> Path:
    return cache_folder() / key[:2] / f"{key}{suffix}"


def get(key: str, suffix: str = ".o") -> bytes | None:
    """The entry, or None when absent or damaged (then it is removed)."""
    path = _path(key, suffix)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return _from_shared(path)
    except OSError as error:
        note(f"the cache folder {cache_folder()} cannot be read ({error.strerror}); compiling without it")
        return _from_shared(path)
    body = unsealed(raw)
    if body is not None:
        return body
    note(f"a damaged cache entry was rebuilt: {path.name}")
    _remove(path)
    return None


def _from_shared(path: Path) -> bytes | None:
    """An entry that others have built, which is here from now on."""
    store = shared()
    return None if store is None else _taken(path, store, store.get(path.name))


def _taken(path: Path, store: Shared, raw: bytes | None) -> bytes | None:
    if raw is None:
        return None
    body = unsealed(raw)
    if body is None:
        note(f"a damaged entry of the shared cache {store.address} is not used: {path.name}")
    else:
        _write(path, raw)
    return body


def sealed(body: bytes) -> bytes:
    """An entry of this content: with its checksum."""
    return MAGIC + hashlib.sha256(body).digest() + body


def unsealed(raw: bytes) -> bytes | None:
    """What an entry holds; None: it is damaged."""
    head = len(MAGIC) + 32
    body = raw[head:]
    whole = raw[: len(MAGIC)] == MAGIC and raw[len(MAGIC) : head] == hashlib.sha256(body).digest()
    return body if whole else None


def files() -> list[Path]:
    """All entries."""
    return sorted(p for p in cache_folder().glob("??/*") if not p.name.startswith(".new-"))


def is_whole(path: Path) -> bool:
    """Whether an entry is undamaged. Raises `OSError`: it has gone."""
    return unsealed(path.read_bytes()) is not None


def put(key: str, body: bytes, suffix: str = ".o") -> None:
    """Store an entry; failing to (full disk, no permission) is noted and does no harm."""
    path, raw = _path(key, suffix), sealed(body)
    _write(path, raw)
    store = shared()
    if store is not None:
        store.put(path.name, raw)


def _write(path: Path, raw: bytes) -> None:
    global _writes
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(raw)
            os.replace(temporary, path)
        except OSError:
            _remove(Path(temporary))
            raise
    except OSError as error:
        note(f"the cache folder {cache_folder()} cannot be written ({error.strerror}); compiling without it")
        return
    _writes += 1
    if _writes % CLEAN_EVERY == 0:
        clean()


def cached(key: str, build: Callable[[], bytes], suffix: str = ".o") -> tuple[bytes, bool]:
    """The entry and whether it was there; built and stored when it was not."""
    found = get(key, suffix)
    if found is not None:
        return found, True
    with building(key, suffix) as other:
        if other is not None:
            return other, True
        body = build()
        put(key, body, suffix)
    return body, False


@contextlib.contextmanager
def building(key: str, suffix: str = ".o") -> Iterator[bytes | None]:
    """Around what builds an entry that is not there, and puts it: where several machines share a cache, only one of
    them builds it. Gives the entry if another one has built it meanwhile."""
    store, path = shared(), _path(key, suffix)
    if store is None:
        _log(path.name)
        yield None
        return
    body = None
    held = store.claim(path.name)
    if held:  # who had claimed it before may have stored it since it was looked for
        body = _taken(path, store, store.get(path.name)) if store.writes else None
    else:
        body = _taken(path, store, store.wait(path.name))
    if body is None:
        _log(path.name)
    try:
        yield body
    finally:
        if held or body is None:
            store.release(path.name)


def _log(name: str) -> None:
    """Say in the file `$POLYC_CACHE_LOG` that an entry is built here: one line, whole, whoever writes beside."""
    if place := os.environ.get("POLYC_CACHE_LOG"):
        with contextlib.suppress(OSError), open(place, "a", encoding="utf-8") as file:
            file.write(f"built {name} {os.getpid()}\n")


def clean(limit: int | None = None) -> None:
    """Remove the kernels used longest ago until they take at most `limit` bytes (None: their part of the cache)."""
    limit = limit_bytes() // KERNELS if limit is None else limit
    entries = []
    for path in cache_folder().glob("??/*"):
        try:
            s = path.stat()
        except OSError:
            continue
        entries.append((max(s.st_atime, s.st_mtime), s.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries, key=lambda e: e[0]):
        if total <= limit:
            return
        _remove(path)
        total -= size


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            note(f"cannot remove {path.name} from the cache ({error.strerror})")
