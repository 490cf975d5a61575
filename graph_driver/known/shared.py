"""Finished programs in the cache that machines share: an entry's folder as one archive.

Programs of models with external data stay on their machine (which files were read is remembered there); their kernels
are shared.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path, PurePosixPath

from polyc.emit import cache
from polyc.emit.cache_files import finish_folder, remove_folder
from polyc.graph_driver.known import entries

SUFFIX = ".program"
SECONDS = 60.0
"""For a program with its weights to come or go."""


def fetch(key: str) -> bool:
    """Bring a program that another machine has compiled into this one's cache; false: there is none that is trusted."""
    store = cache.shared()
    if store is None:
        return False
    name = f"{key}{SUFFIX}"
    raw = store.get(name, SECONDS)
    body = None if raw is None else cache.unsealed(raw)
    if body is None:
        if raw is not None:
            cache.note(f"a damaged entry of the shared cache {store.address} is not used: {name}")
        return False
    try:
        _unpack(body, key)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        cache.note(f"a finished program of the shared cache is not used: {getattr(error, 'strerror', None) or error}")
        return False
    return True


def offer(key: str, folder: Path) -> None:
    """Put a program into the shared cache, if there is one."""
    store = cache.shared()
    if store is not None and store.writes:
        store.put(f"{key}{SUFFIX}", cache.sealed(_packed(folder)), seconds=SECONDS)


def _packed(folder: Path) -> bytes:
    """The files of a folder as an archive: the same bytes for the same files. Raises `OSError`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
    return out.getvalue()


def _unpack(body: bytes, key: str) -> None:
    """Raises `OSError`; `ValueError`: the archive names places outside."""
    folder = entries.new_folder()
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            for info in archive.infolist():
                name = PurePosixPath(info.filename)
                if name.is_absolute() or ".." in name.parts or info.is_dir():
                    raise ValueError(f"it has a file {info.filename!r}")
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(info))
        finish_folder(folder, entries.place_of(key))
    finally:
        if folder.is_dir():
            remove_folder(folder)
