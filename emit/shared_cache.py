"""The part of the cache that several machines share: any address that fsspec knows, under the local folder.

Entries are named by their content's key, carry a checksum and are written once, so that any number of machines may read
and write at the same time, and a server needs to know nothing of polyc. A machine that starts to build an entry leaves
a claim beside it, for which others wait a while instead of building the same; a claim is a courtesy, not a lock.

The entries are machine code: who may write there decides what others run. Where public keys are trusted
(`polyc.emit.signatures`) entries without a signature by one of them are not used.

What goes wrong with the network is noted and costs the shared part, never the program.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from polyc.emit.signatures import Keys, Refused, keys_here

LAYOUT = "polyc-1"
"""The folder at the address in which entries of this form are."""
ADDRESS = re.compile(r"(?:(?P<folder>.*?),)?(?P<address>[a-z][a-z0-9+.-]*(?:::[a-z][a-z0-9+.-]*)*://.*)", re.S)
"""Of `POLYC_CACHE`: a local folder and a comma, if another than the user's is meant, and an address."""
WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "memory"})
"""Kinds of stores in which an object appears whole. In others it gets its name when it is written."""
READ_ONLY = frozenset({"http", "https", "github", "zip", "tar"})
FOLDERS = frozenset({"file", "local"})
"""Kinds whose `pipe_file(mode="create")` looks and then writes, so that two may create one file; `open` does not."""

SECONDS = 10.0
"""For one answer of the store; after that it is done without."""
FAILURES = 3
"""So many of them and the store is left alone by this process."""
CLAIM_SECONDS = 30.0
"""How long the claim of somebody who builds an entry holds others up."""
AGAIN = 0.1
"""Seconds between two looks for an entry that somebody else builds."""

Result = TypeVar("Result")
Note = Callable[[str], None]


def parts_of(text: str) -> tuple[str, str]:
    """The local folder ("": the user's) and the shared address ("": none) of a value of `POLYC_CACHE`."""
    found = ADDRESS.fullmatch(text)
    return (text, "") if found is None else (found["folder"] or "", found["address"])


def shared(note: Note) -> Shared | None:
    """The shared part that `POLYC_CACHE` names; None: there is none. `note` takes what goes wrong."""
    address = parts_of(os.environ.get("POLYC_CACHE", ""))[1]
    if not address:
        return None
    asked = tuple(os.environ.get(name, "") for name in ("POLYC_CACHE_WRITE", "POLYC_CACHE_KEY", "POLYC_TRUST"))
    return _opened(address, asked, os.getpid(), note)


@functools.lru_cache(maxsize=8)
def _opened(address: str, asked: tuple[str, str, str], process: int, note: Note) -> Shared | None:
    try:
        import fsspec

        files, root = fsspec.core.url_to_fs(address)
    except ImportError as error:
        note(f"the shared cache {address} is not used: {error} (pip install 'polyc[dask]' brings fsspec)")
        return None
    except Exception as error:  # of any store's own package
        note(f"the shared cache {address} is not used: {_short(error)}")
        return None
    try:
        keys = keys_here()
    except Refused as error:
        note(f"the shared cache {address} is not used: {error}")
        return None
    return Shared(files, f"{root.rstrip('/')}/{LAYOUT}", address, keys, note, asked[0] != "0")


class Shared:
    """A store of entries by name. Nothing raises: what cannot be had is not there."""

    def __init__(self, files: Any, root: str, address: str, keys: Keys, note: Note, may_write: bool = True) -> None:
        self.files, self.root, self.address, self.keys = files, root, address, keys
        self._note = note
        self._failures = 0
        kinds = {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)
        self._whole, self._folders = bool(kinds & WHOLE), bool(kinds & FOLDERS)
        # Where signatures are asked for, what is not signed is of no use to anybody.
        self.writes = may_write and not kinds & READ_ONLY and (keys.signs or not keys.checks)
        self._claims = self.writes

    def path(self, name: str) -> str:
        """Where an entry is."""
        return f"{self.root}/{name[:2]}/{name}"

    def get(self, name: str, seconds: float | None = None) -> bytes | None:
        """An entry; None: there is none, or none that is trusted, or it did not come in time (`SECONDS`)."""
        raw = self._asked(lambda: self._read(self.path(name)), seconds)
        if raw is None or not self.keys.checks:
            return raw
        for key in self.keys.trusted:
            path = f"{self.path(name)}.{key}.sig"
            signature = self._asked(lambda path=path: self._read(path))  # type: ignore[misc]
            if signature is not None and self.keys.holds(key, name, raw, signature):
                return raw
        self._note(f"entries of the shared cache {self.address} that no trusted key has signed are not used")
        return None

    def put(self, name: str, raw: bytes, damaged: bool = False, seconds: float | None = None) -> None:
        """Store an entry, unless it is there (and not `damaged`)."""
        if not self.writes:
            return

        def store() -> None:
            path = self.path(name)
            if damaged or not self.files.exists(path):
                self._write(path, raw)
            if self.keys.signs:
                self._write(f"{path}.{self.keys.own}.sig", self.keys.sign(name, raw))

        self._asked(store, seconds)

    def claim(self, name: str) -> bool:
        """Say that this process builds an entry; false: another one has said so. True, too, where nobody can."""
        if not self._claims or self._failures >= FAILURES:
            return True

        def create() -> bool:
            path = self._claim(name)
            self._folder(path)
            try:
                if self._folders:
                    self.files.open(path, "xb").close()
                else:
                    self.files.pipe_file(path, b"", mode="create")
            except FileExistsError:
                return False
            except (NotImplementedError, ValueError, TypeError):  # this kind of store cannot
                self._claims = False
            return True

        return self._asked(create) is not False

    def release(self, name: str) -> None:
        """Take the claim back."""
        if self._claims:

            def remove() -> None:
                with contextlib.suppress(FileNotFoundError):
                    self.files.rm_file(self._claim(name))

            self._asked(remove)

    def wait(self, name: str, seconds: float = CLAIM_SECONDS) -> bytes | None:
        """An entry that somebody else has claimed, as soon as it is there; None: it did not come. Then the claim is
        this process's."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._failures < FAILURES:
            if (raw := self.get(name)) is not None:
                return raw
            if self.claim(name):  # whoever had it has given up, or has just stored the entry
                raw = self.get(name)
                if raw is not None:
                    self.release(name)
                return raw
            time.sleep(AGAIN)
        return None

    def names(self) -> list[str]:
        """All entries, in order. Raises `OSError`: the store cannot say."""
        found = self.files.glob(f"{self.root}/??/*")
        names = (str(path).rpartition("/")[2] for path in found)
        return sorted(n for n in names if not n.endswith((".sig", ".claim")) and not n.startswith("."))

    def sign(self, name: str) -> bool:
        """Sign an entry by this machine's key; false: it has gone. Raises `OSError`."""
        path = self.path(name)
        raw = self._read(path)
        if raw is not None:
            self._write(f"{path}.{self.keys.own}.sig", self.keys.sign(name, raw))
        return raw is not None

    def read(self, name: str) -> bytes | None:
        """The bytes of an entry, whoever signed it. Raises `OSError`."""
        return self._read(self.path(name))

    # ----

    def _claim(self, name: str) -> str:
        return f"{self.path(name)}.claim"

    def _read(self, path: str) -> bytes | None:
        try:
            return bytes(self.files.cat_file(path))
        except FileNotFoundError:
            return None

    def _write(self, path: str, raw: bytes) -> None:
        self._folder(path)
        if self._whole:
            self.files.pipe_file(path, raw)
            return
        folder, _, name = path.rpartition("/")
        unfinished = f"{folder}/.new-{uuid.uuid4().hex}-{name[:16]}"
        try:
            self.files.pipe_file(unfinished, raw)
            self.files.mv(unfinished, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self.files.rm_file(unfinished)
            raise

    def _folder(self, path: str) -> None:
        if not self._whole:
            self.files.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _asked(self, question: Callable[[], Result], seconds: float | None = None) -> Result | None:
        """The store's answer; None where it has none, or none in time."""
        if self._failures >= FAILURES:
            return None
        answer: list[Result] = []
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                answer.append(question())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=ask, daemon=True, name="polyc shared cache")
        thread.start()
        limit = SECONDS if seconds is None else seconds
        thread.join(limit)
        if answer:
            return answer[0]
        self._failures += 1
        why = _short(failed[0]) if failed else f"no answer in {limit:.0f} s"
        self._note(f"the shared cache {self.address} cannot be used ({why}); compiling without it")
        return None


def _short(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
    return text or type(error).__name__
