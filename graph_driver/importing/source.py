"""A source of a model that can be read again later."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from polyc.poly.errors import ModelError

if TYPE_CHECKING:  # known models start without onnx
    import onnx

    from polyc.graph_driver.importing.declared import Declared


class Source:
    """A model that can be read again when other sizes come: a file as it was, or bytes.

    A protobuf is kept as bytes, lest somebody changes it in between.
    """

    def __init__(self, source: str | Path | onnx.ModelProto | bytes) -> None:
        self._stamp: tuple[int, int] | None = None
        self._source: Path | bytes | onnx.ModelProto
        if not isinstance(source, (str, Path, bytes)):
            try:
                self._source = source.SerializeToString()
            except ValueError:  # more than 2 GB
                self._source = source
        elif isinstance(source, bytes):
            self._source = source
        else:
            self._source = Path(source).absolute()
            self._stamp = self._changed()

    @property
    def path(self) -> Path | None:
        """Where the file is; None: the source is none."""
        return self._source if isinstance(self._source, Path) else None

    @property
    def folder(self) -> Path | None:
        """Where its external data is."""
        return None if self.path is None else self.path.parent

    def digest(self) -> str | None:
        """The SHA-256 of bytes; None of files, and of protobufs that have no bytes."""
        return hashlib.sha256(self._source).hexdigest() if isinstance(self._source, bytes) else None

    def _changed(self) -> tuple[int, int]:
        path = self._source
        assert isinstance(path, Path)
        try:
            about = path.stat()
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
        return about.st_size, about.st_mtime_ns

    def again(self) -> Path | bytes | onnx.ModelProto:
        """What the importer takes. Raises `ModelError` when the file is no longer the one that was compiled."""
        if isinstance(self._source, Path) and self._changed() != self._stamp:
            raise ModelError(f"{self._source} has changed since it was compiled: compile it again")
        return self._source

    def declared(self, without: Iterable[str] = ()) -> Declared:
        """What the file says of its inputs. Raises `ModelError`."""
        from polyc.graph_driver.importing.declared import declared
        from polyc.graph_driver.importing.reading import read

        return declared(read(self.again())[0], without)
