"""Known models: what `compile_model` finds in the cache instead of compiling, and what it keeps there.

A finished program is what `Model.save` writes. Graph and groups are not in it: who looks at them has the model
compiled (`Built.anew`). What a damaged entry held is compiled anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyc.emit import cache
from polyc.emit.cache_files import finish_folder, remove_folder
from polyc.graph_driver.artifacts.package import opened, write
from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.execution.control import ControlNode
from polyc.graph_driver.graph.defects import PASSING
from polyc.graph_driver.graph.limits import check_memory
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.graph.watched import AnnotationWarning, Watched, warn, watching
from polyc.graph_driver.graph.wording import human
from polyc.graph_driver.importing.source import Source
from polyc.graph_driver.known import entries
from polyc.graph_driver.known.contents import Content, content_of, unchanged
from polyc.graph_driver.known.key import NoKey, hashed, key_of
from polyc.graph_driver.known.room import make_room, most_bytes
from polyc.graph_driver.known.shared import fetch, offer
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.running.model import Built, Model
from polyc.graph_driver.running.per_call import PerCall
from polyc.graph_driver.running.specialising import Specialiser
from polyc.poly.errors import BuildError, ModelError

if TYPE_CHECKING:
    import onnx

    from polyc.graph_driver.importing.declared import Declared

Compiling = Callable[["Path | bytes | onnx.ModelProto", CompileOptions], Model]

CATEGORIES = {"AnnotationWarning": AnnotationWarning}
"""Warnings of a compilation that the user of a known model gets, too (programs that warned of a bug are not kept)."""


class Known:
    """One call of `compile_model`, as far as the cache is concerned: `find`, else compile while `watching`, and
    `keep`."""

    def __init__(
        self, source: str | Path | onnx.ModelProto | bytes, platform: Platform, options: CompileOptions
    ) -> None:
        self._start = time.perf_counter()
        self._platform, self._options = platform, options
        self._watched = Watched()
        self._source: Source | None = None
        self._content: Content | str | None = None
        if os.environ.get("POLYC_PROGRAMS", "1") == "0":
            return
        try:
            self._source = Source(source)  # before its content is read: a change in between is seen
            self._content = _content(self._source)
        except (ModelError, TypeError):
            return  # compiling says what is wrong with it

    @cached_property
    def _key(self) -> str | None:
        """The key but for external data; None: nothing is taken from the cache."""
        return self._key_now()

    def _key_now(self) -> str | None:
        if self._content is None:
            return None
        digest = self._content if isinstance(self._content, str) else self._content.digest
        try:
            return key_of(digest, self._platform, self._options)
        except (NoKey, OSError):
            return None

    # ---- to find ----

    def find(self, anew: Compiling, compiling: Compiling) -> Model | None:
        """The model, if it is known and its entry undamaged. `anew` compiles without the cache, `compiling` for the
        shapes of calls.

        Raises:
            ModelError: this machine has not the memory.
        """
        key = self._with_files()
        if key is None:
            return None
        folder = entries.place_of(key)
        try:
            about = entries.about(folder)
            if about is None and fetch(key):
                about = entries.about(folder)
            if about is None:
                return None
            model = self._per_call(about, compiling) if "why" in about else self._opened(folder, about, compiling)
        except (BuildError, ValueError, KeyError, TypeError, AttributeError) as error:
            if folder.is_dir():  # else it was evicted just now
                entries.drop(folder)
                cache.note(f"a damaged finished program was compiled anew: {' '.join(str(error).split())[:200]}")
            return None
        self._look_into(model, anew)
        entries.used_now(folder)
        self._say(model.report(), about)
        return model

    def _with_files(self) -> str | None:
        """The key with the external data that the program was compiled from, as it is now."""
        if self._key is None or self._source is None:
            return None
        names = entries.read_files(self._key)
        folder = self._source.folder
        if not names:
            return self._key
        if folder is None:
            return None
        root, parts = folder.resolve(), [self._key]
        for name in names:
            path = (root / name).resolve()
            found = content_of(path) if root in path.parents else None
            if found is None:
                return None
            parts += [name, found.digest]
        return hashed(*parts)

    def _opened(self, folder: Path, about: dict[str, Any], compiling: Compiling) -> Model:
        sums = about["sums"]

        def check(place: Path, name: str, data: memoryview, entry: dict[str, Any]) -> None:
            import numpy as np

            if entries.page_sums(np.frombuffer(data, np.uint8)) != sums[_body_of(folder, place)]:
                raise BuildError(f"the checksum of {name} does not match")

        model = opened(folder, check)
        misfit = self._platform.backend.misfit(model.code)
        if misfit:
            raise BuildError(misfit)
        plan, formulas = model.plan, model.running.formulas
        if formulas is None:
            outputs = sum(plan.slots[o].nbytes for o in plan.outputs)
            check_memory("the model (arena, weights and outputs)", plan.peak + plan.weight_bytes + outputs)
        else:
            assert self._source is not None
            model.running.specialiser = Specialiser(self._source, self._options, model.report(), compiling)
        return model

    def _per_call(self, about: dict[str, Any], compiling: Compiling) -> Model:
        assert self._source is not None
        report = Report(self._platform.name, self._platform.threads)
        said = _declared(about["declared"])
        running = PerCall(Specialiser(self._source, self._options, report, compiling, said), str(about["why"]))
        report.sizes = [running.sizes]
        return Model(running.name, running, report)

    def _look_into(self, model: Model, anew: Compiling) -> None:
        source, options = self._source, self._options
        assert source is not None
        made: list[Model] = []

        def compiled() -> Model:
            if not made:
                again = anew(source.again(), options)
                if again.plan.to_json() != model.plan.to_json():
                    raise ModelError(
                        f"{model.name} is compiled in another way by now: compile it again to look into it"
                    )
                made.append(again)
            return made[0]

        _connect(model, compiled)

    def _say(self, report: Report, about: dict[str, Any]) -> None:
        """What the report says of a known model; warnings that the compilation gave."""
        took = sum(report.seconds.values())
        report.seconds = {"key": time.perf_counter() - self._start - took, **report.seconds}
        report.cache_hits = int(about["hits"])
        report.specialised = [str(line) for line in about["specialised"]]
        times = {name: {str(k): float(v) for k, v in about[name]} for name in ("seconds", "kernel_seconds")}
        report.made = {"on": str(about["on"]), **times}
        report.eager_launches, report.eager_peak = map(int, about["eager"])
        report.notes += cache.notes()
        for category, text in about["warnings"]:
            warn(text, CATEGORIES[category], 4)

    # ---- to keep ----

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the compilation."""
        with watching() as self._watched:
            yield

    def keep(self, model: Model) -> None:
        """Put the finished program into the cache, unless something stands against it; that does no harm."""
        if self._key is None:
            return
        with model.report().stage("keep"):
            try:
                key = self._still()
                if key is not None and not self._passing(model.report()):
                    self._write(model, key)
            except (OSError, BuildError) as error:
                cache.note(f"a finished program is not kept: {getattr(error, 'strerror', None) or error}")

    def _passing(self, report: Report) -> bool:
        """Whether something went wrong that need not go wrong again."""
        lines = [
            *report.notes,
            *(reason for _, _, reason in report.host),
            *(text for _, text in self._watched.warnings),
        ]
        return any(phrase in line for phrase in PASSING for line in lines)

    def _still(self) -> str | None:
        """The key with external data, if everything that decides is as it was before. Raises `OSError`."""
        assert self._source is not None and self._key is not None
        if self._key_now() != self._key:
            return None
        path = self._source.path
        if path is not None and not (isinstance(self._content, Content) and unchanged(path, self._content)):
            return None
        parts = [self._key]
        for name, (where, stamp, opened_at) in sorted(self._watched.files.items()):
            found = content_of(where)
            if found is None or found.stamp != stamp or not stamp.settled(opened_at):
                return None
            parts += [name, found.digest]
        entries.remember_files(self._key, sorted(self._watched.files))
        return hashed(*parts) if len(parts) > 1 else self._key

    def _write(self, model: Model, key: str) -> None:
        place = entries.place_of(key)
        needs = 0 if model.running.unsaved else _weight_bytes(model)
        if needs > most_bytes():
            cache.note(f"a finished program with weights of {human(needs)} is not kept (POLYC_CACHE_SIZE allows more)")
            return
        folder = entries.new_folder()
        try:
            about = self._about(model, key)
            if isinstance(model.running, PerCall):
                about |= {"why": model.running.why, "declared": _plain(model.running.said)}
            else:
                write(model, folder, entries.put_weights)
                about["sums"] = {name: entries.page_sums(m.weights) for name, m in _models(model)}
            (folder / entries.ABOUT).write_bytes(entries.sealed(about))
            finish_folder(folder, place)
            if not self._watched.files:
                offer(key, place)
        finally:
            if folder.is_dir():
                remove_folder(folder)
        make_room()

    def _about(self, model: Model, key: str) -> dict[str, Any]:
        report = model.report()
        path = None if self._source is None else self._source.path
        return {
            "key": key,
            "name": model.name,
            "path": "" if path is None else str(path),
            "target": self._platform.name,
            "on": time.strftime("%Y-%m-%d %H:%M:%S"),
            "seconds": [[k, round(v, 4)] for k, v in report.seconds.items()],
            "kernel_seconds": [[k, round(v, 4)] for k, v in report.kernel_seconds.items()],
            "eager": [report.eager_launches, report.eager_peak],
            "hits": report.distinct,
            "specialised": list(report.specialised),
            "warnings": [list(w) for w in self._watched.warnings],
        }


def _content(source: Source) -> Content | str | None:
    """What decides about the program of all that the source holds."""
    return content_of(source.path) if source.path is not None else source.digest()


def _bodies(model: Model) -> Iterator[tuple[int, int, Model]]:
    """The bodies of a model's control flow, by host step and place."""
    for k, host in enumerate(model.hosts):
        for n, body in enumerate(host.bodies if isinstance(host, ControlNode) else ()):
            if isinstance(body, Model):
                yield k, n, body


def _models(model: Model, name: str = "") -> Iterator[tuple[str, Model]]:
    """A model and the bodies of its control flow, by where their folders are."""
    yield name, model
    for k, n, body in _bodies(model):
        yield from _models(body, f"{name}/body_{k}_{n}")


def _body_of(folder: Path, place: Path) -> str:
    inner = place.relative_to(folder).as_posix()
    return "" if inner == "." else f"/{inner}"


def _weight_bytes(model: Model) -> int:
    return sum(m.plan.weight_bytes for _, m in _models(model))


def _connect(model: Model, compiled: Callable[[], Model]) -> None:
    """Let a model have graph and groups from the one that `compiled` gives, and its bodies from that one's."""
    if model.running.unsaved:
        return

    def built() -> Built:
        return compiled().running.built

    model.running.compiled_by(built)
    for k, n, body in _bodies(model):
        _connect(body, partial(_body, compiled, k, n))


def _body(compiled: Callable[[], Model], step: int, place: int) -> Model:
    return next(body for k, n, body in _bodies(compiled()) if (k, n) == (step, place))


def _plain(said: Declared) -> dict[str, Any]:
    shapes = [[name, None if sizes is None else list(sizes)] for name, sizes in said.shapes.items()]
    return {"name": said.name, "shapes": shapes, "tensors": sorted(said.tensors)}


def _declared(data: dict[str, Any]) -> Declared:
    from polyc.graph_driver.importing.declared import Declared

    return Declared(str(data["name"]), dict(map(tuple, data["shapes"])), frozenset(data["tensors"]))
