"""Compiled directories as values: a model on its way to another process."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from polyc.graph_driver.artifacts.package import load
from polyc.poly.errors import BuildError, ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.running.model import Model
    from polyc.graph_driver.running.specialising import Origin


def pickled(model: Model) -> tuple[Callable[..., Model], tuple[Any, ...]]:
    """What `Model.__reduce__` gives: the files, and what the model is specialised from; of a model for the
    shapes of each call only that.

    Raises:
        BuildError: the model cannot be saved.
        ModelError: the file that it specialises from has changed.
    """
    specialiser = model.running.specialiser
    if specialiser is None:
        return from_files, (files_of(model),)
    if model.running.unsaved:  # code for the shapes of calls is made anew, most of it from the cache
        return specialiser.compiling, specialiser.origin()
    return from_files, (files_of(model), specialiser.origin())


def files_of(model: Model) -> dict[str, bytes]:
    """The files of the model's compiled directory by their place in it.

    Raises:
        BuildError: the model cannot be saved.
    """
    with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
        place = Path(folder) / "model"
        model.save(place)
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}


def from_files(files: dict[str, bytes], origin: Origin | None = None) -> Model:
    """The model of such files; with its `origin` it specialises as it did, where a path in it is still there.

    Raises:
        BuildError: they are damaged, or name places outside.
    """
    from polyc.graph_driver.compile_model import compile_with
    from polyc.graph_driver.importing.source import Source
    from polyc.graph_driver.running.specialising import Specialiser

    with tempfile.TemporaryDirectory(prefix="polyc-") as folder:
        for name, data in files.items():
            if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
                raise BuildError(f"a model cannot have a file {name!r}")
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        model = load(Path(folder))  # what is mapped into memory outlives its file
    if origin is not None:
        with contextlib.suppress(ModelError):
            model.running.specialiser = Specialiser(Source(origin[0]), origin[1], model.report(), compile_with)
    return model
