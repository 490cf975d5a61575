"""What tuning has found, one JSON file for each kernel, by structure, sizes, target and threads.

The files are in `tuning/` in the cache folder. Each carries a checksum; one that is damaged, or of another format, is
as good as none and is overwritten. Writes are atomic. Nothing is unpickled or run: a schedule is a trace of steps,
which is replayed and proved like any other.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from polyc.poly import json_io
from polyc.poly.errors import BuildError
from polyc.poly.records import dataclass
from polyc.poly.scop import Scop
from polyc.poly.target import Target
from polyc.scheduler.tuning.search import Outcome

FORMAT, VERSION = "polyc-tuning", 1


@dataclass(frozen=True)
class Record:
    """The state of tuning one kernel.

    `trials` by candidate. `trace` is the schedule to use from now on, empty while untuned is best; `gain` the
    untuned time over its time in the final comparison (1 when it lost), None before that comparison. `chosen` is
    its name.
    """

    name: str
    target: str
    threads: int
    trials: Mapping[str, Outcome] = field(default_factory=dict)
    chosen: str = ""
    trace: str = ""
    gain: float | None = None
    compared: int = 0

    def data(self) -> dict[str, Any]:
        """As JSON values."""
        trials = {n: [o.ratio, o.seconds, o.error, o.ran] for n, o in self.trials.items()}
        return {**vars(self), "trials": trials}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Record:
        """Back from `data()`. Raises `KeyError`, `TypeError` or `ValueError`."""
        trials = {
            str(n): Outcome(_number(ratio), _number(seconds), str(error), bool(ran))
            for n, (ratio, seconds, error, ran) in data["trials"].items()
        }
        return Record(
            str(data["name"]), str(data["target"]), int(data["threads"]), trials, str(data["chosen"]),
            str(data["trace"]), _number(data["gain"]), int(data["compared"]),
        )  # fmt: skip

    @property
    def ran(self) -> int:
        """Trials for which a process was started."""
        return sum(o.ran for o in self.trials.values())

    def with_trial(self, candidate: str, outcome: Outcome) -> Record:
        """One more trial."""
        return replace(self, trials={**self.trials, candidate: outcome})


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def key_of(scop: Scop, target: Target, threads: int) -> str:
    """The key of a kernel: all of its Scop but names of files and lines, the target, the threads, the versions."""
    from polyc.emit import cache

    data = _without_spans(json.loads(json_io.dumps(scop)))
    return cache.make_key("tuning", json.dumps(data, sort_keys=True), repr(target), str(threads))


def _without_spans(data: Any) -> Any:
    """JSON of a Scop without remarks and without places in the source (`[file, line, column, line, column, text]`)."""
    if isinstance(data, dict):
        return {k: _without_spans(v) for k, v in data.items() if k != "notes"}
    if isinstance(data, list):
        place = len(data) == 6 and all(isinstance(v, str if k in (0, 5) else int) for k, v in enumerate(data))
        return None if place else [_without_spans(v) for v in data]
    return data


def folder() -> Path:
    """Where the database is."""
    from polyc.emit import cache

    return cache.cache_folder() / "tuning"


def find(key: str) -> Record | None:
    """The record of a kernel; None when there is none that can be read. One that is damaged is warned of."""
    path = folder() / f"{key}.json"
    try:
        text = path.read_bytes()
    except OSError:
        return None
    try:
        whole = json.loads(text)
        record, kind = whole["record"], (whole["format"], whole["version"])
        if kind != (FORMAT, VERSION):
            return None  # of another version of polyc
        if whole["checksum"] == _checksum(record):
            return Record.from_data(record)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    warnings.warn(
        f"the tuning record {path} is damaged and is not used; polyc tune makes it again", RuntimeWarning, stacklevel=2
    )
    return None


def store(key: str, record: Record) -> None:
    """Write a record.

    Raises:
        BuildError: the folder cannot be written.
    """
    data = record.data()
    text = json.dumps({"format": FORMAT, "version": VERSION, "checksum": _checksum(data), "record": data})
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=place, prefix=".new-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                f.write(text + "\n")
            os.replace(temporary, place / f"{key}.json")
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BuildError(f"cannot write the tuning database {place}: {error.strerror}") from None


def stamp() -> str:
    """A hash of what the database says now: of the traces of all records."""
    digest = hashlib.sha256()
    for path in sorted(folder().glob("*.json")):
        record = find(path.stem)
        if record is not None and record.trace:
            digest.update(f"{path.stem} {record.trace}\n".encode())
    return digest.hexdigest()


def _checksum(record: Any) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
