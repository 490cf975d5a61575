"""A content-addressed cache on disk for compiled objects.

The key is a hash of everything that can change the bytes: source text, target, options and
the versions of polyc, llvmlite and the cache format. Entries carry a checksum; a damaged one
is removed and rebuilt. Writes are atomic (a temporary file renamed into place), so that
concurrent processes never see half an entry. A folder that cannot be written turns the
cache off and says so once.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from polyc.poly.errors import BuildError
from polyc.poly.installed import version

FORMAT = 1
MAGIC = b"polyc-cache-1\n"
LIMIT_BYTES = 4 << 30
KERNELS = 4  # one part in so many is for kernels, the others for finished programs (`polyc.graph_driver.known`)
SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(?:I?B)?")
CLEAN_EVERY = 256  # writes of this process between two looks at the size

_notes: list[str] = []
_writes = 0


def cache_folder() -> Path:
    """`$POLYC_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("POLYC_CACHE")
    if chosen:
        return Path(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("polyc"))


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
        return None
    except OSError as error:
        note(f"the cache folder {cache_folder()} cannot be read ({error.strerror}); compiling without it")
        return None
    body = _body(raw)
    if body is not None:
        return body
    note(f"a damaged cache entry was rebuilt: {path.name}")
    _remove(path)
    return None


def _body(raw: bytes) -> bytes | None:
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
    return _body(path.read_bytes()) is not None


def put(key: str, body: bytes, suffix: str = ".o") -> None:
    """Store an entry; failing to (full disk, no permission) is noted and does no harm."""
    global _writes
    path = _path(key, suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(MAGIC + hashlib.sha256(body).digest() + body)
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
    body = build()
    put(key, body, suffix)
    return body, False


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
