"""A compiled model as a directory that loads without ONNX's file and without recompiling.

    manifest.json   plan, target, names, sizes and SHA-256 of the other files; its own checksum
    weights.bin     the weights segment, mapped into memory at load
    code.bin        machine code of the kernels and the native program, one after another
    sources.json    what the kernels were made from: another CPU compiles them again (`recompiling.py`)
    host.bin        serialised one-node ONNX models of host steps
    body_N_K        body K of step N of control flow: a compiled directory of its own

What `code.bin` holds, and which files are beside it, is the back end's matter: this is a CPU's.

File names are fixed; nothing in the manifest is ever used as a path. Writing goes to a
temporary directory that is renamed into place.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyc.emit import cache
from polyc.graph_driver.artifacts.recompiling import recompiled
from polyc.graph_driver.backends.registry import named
from polyc.graph_driver.execution.control import ControlNode
from polyc.graph_driver.execution.run_memory import aligned_bytes
from polyc.graph_driver.graph.external import check_registered
from polyc.graph_driver.graph.limits import MAX_TENSOR_BYTES
from polyc.graph_driver.graph.report import Report
from polyc.graph_driver.memory import PlanError
from polyc.graph_driver.planning.plan import Plan
from polyc.graph_driver.planning.verify_plan import check_plan
from polyc.graph_driver.running.fixed import FixedSizes
from polyc.graph_driver.running.model import Built, Model
from polyc.poly.errors import BuildError, ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.graph.python_calls import PythonCall
    from polyc.graph_driver.host.reference import HostNode

FORMAT = 8
MANIFEST, WEIGHTS, HOST = "manifest.json", "weights.bin", "host.bin"
UNNAMED = "gpu"  # the back end of directories that name none: those of CPUs always did
SYMBOL = re.compile(r"polyc_(?:[0-9a-f]{20}|cpu[0-9a-f]{17})")  # cpu: `polyc.graph_driver.fusion.joined.ON_CPU`

PutWeights = Callable[[Path, memoryview], dict[str, Any]]
CheckWeights = Callable[[Path, str, memoryview, dict[str, Any]], None]
"""Called with a folder, the name of a file in it, its content, and its entry in the manifest; raises `BuildError`."""


def save(model: Model, folder: Path) -> None:
    """Write `model` to `folder`, which is new, empty, or an older compiled directory.

    Raises:
        BuildError: the folder cannot be written, or holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise BuildError(f"cannot write {folder}: it is a file")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise BuildError(f"cannot write {folder}: it exists and is no compiled model")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise BuildError(f"cannot write {folder}: {error.strerror}") from None
    try:
        write(model, temporary)
        temporary.chmod(0o755)
        _replace(temporary, folder)
    except OSError as error:
        raise BuildError(f"cannot write {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace(temporary: Path, folder: Path) -> None:
    """Put the finished directory in place; an old one is moved aside first, then removed."""
    if not folder.exists():
        temporary.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    try:
        folder.rename(old / "was")
        try:
            temporary.rename(folder)
        except OSError:
            (old / "was").rename(folder)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _write_bodies(
    folder: Path, number: int, node: HostNode | ControlNode | PythonCall, put_weights: PutWeights
) -> dict[str, Any]:
    """Write the bodies of control flow; what the manifest says about them."""
    if not isinstance(node, ControlNode):
        return {}
    checksums: list[str | None] = []
    for k, body in enumerate(node.bodies):
        if body is None:
            checksums.append(None)
            continue
        place = folder / f"body_{number}_{k}"
        place.mkdir()
        assert isinstance(body, Model)
        checksums.append(write(body, place, put_weights))
    return {"course": node.course, "bodies": checksums}


def _weights_put(path: Path, data: memoryview) -> dict[str, Any]:
    return _put(path, [data])


def write(model: Model, folder: Path, put_weights: PutWeights = _weights_put) -> str:
    """Write one model into a folder that is there; the checksum of its manifest. `put_weights` writes the weights and
    gives their size and digest. Raises `OSError`, `BuildError`."""
    steps: list[Any] = list(model.hosts)
    nodes = [h.host if isinstance(h, ControlNode) else h for h in steps]
    hosts = [b"" if n is None else n.proto.SerializeToString(deterministic=True) for n in nodes]
    backend = model.code.platform.backend
    kept = backend.save(model.code, model.plan)
    backend.write_for_people(model.code, kept, folder)
    files = {
        WEIGHTS: put_weights(folder / WEIGHTS, model.weights.data),
        HOST: _put(folder / HOST, hosts),
        **{name: _put(folder / name, parts) for name, parts in kept.files.items()},
    }
    manifest = {
        "format": FORMAT,
        "name": model.name,
        "backend": backend.name,
        **kept.entries,
        "host": [
            {"kind": h.kind, "name": h.name, "size": len(p)} | _write_bodies(folder, k, h, put_weights)
            for k, (h, p) in enumerate(zip(steps, hosts, strict=True))
        ],
        "plan": json.loads(model.plan.to_json()),
        **_formulas(model),
        "report": _kept(model.report()),
        "files": files,
    }
    manifest["checksum"] = _checksum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, sort_keys=True, separators=(",", ":")), encoding="utf-8")
    return str(manifest["checksum"])


def _formulas(model: Model) -> dict[str, Any]:
    """What a model with symbolic sizes has besides its plan."""
    from polyc.graph_driver.planning.formulas import formulas_to_data

    formulas = model.running.formulas
    return {} if formulas is None else {"symbolic": formulas_to_data(formulas)}


def _put(path: Path, parts: Sequence[bytes | memoryview]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as out:
        for part in parts:
            out.write(part)
            digest.update(part)
            size += len(part)
        out.flush()
        os.fsync(out.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def _kept(report: Report) -> dict[str, Any]:
    """The part of the report that stays true in another process; no times, so that
    the same model and options give the same bytes."""
    data = report.to_dict()
    for key in ("seconds", "kernel_seconds", "cache_hits", "specialised", "made", "tiers"):
        data.pop(key)
    data["notes"] = [n for n in data["notes"] if n not in cache.notes()]  # of this process
    return data


def is_package(path: Path) -> bool:
    """Whether the path is a compiled directory."""
    try:
        return (path / MANIFEST).is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL: reading it says so
        return False


def load(folder: str | Path) -> Model:
    """Load a compiled directory: no ONNX file needed.

    It holds machine code, which runs in this process with all its rights: load only what you would run as a program.
    Checksums find damage, not malice.

    Raises:
        BuildError: it is no compiled directory, damaged, or for another machine.
    """
    return opened(Path(folder), _check_digest)


def opened(folder: Path, check_weights: CheckWeights) -> Model:
    """`load`, with a check of weights that may be another one. Raises `BuildError` as it does."""
    manifest = _manifest(folder)
    report = Report()
    try:
        with report.stage("load"):
            return _load(folder, manifest, report, check_weights)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, PlanError) as error:
        raise BuildError(f"{folder} is damaged: {type(error).__name__} {error} in the manifest") from None
    except ModelError as error:
        raise BuildError(f"{folder} is damaged: {error}") from None


def check_files(folder: Path) -> None:
    """Compare every file of a compiled directory with its manifest, without loading any. Raises `BuildError`."""
    data = _manifest(folder)
    try:
        for name, entry in data["files"].items():
            if name not in os.listdir(folder):
                raise BuildError(f"{folder} is damaged: {name} is missing")
            _read(folder, name, entry)
        for number, host in enumerate(data["host"]):
            for k, checksum in enumerate(host.get("bodies", ())):
                if checksum is not None:
                    check_files(folder / f"body_{number}_{k}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BuildError(f"{folder} is damaged: {type(error).__name__} {error} in the manifest") from None


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except OSError as error:
        raise BuildError(f"cannot load {folder}: {error.strerror}; expected a folder made by polyc compile") from None
    except UnicodeDecodeError:
        raise BuildError(f"{folder} is damaged: the manifest is not text") from None
    try:
        data = json.loads(text)
        claimed = data.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise BuildError(f"{folder} is damaged: the manifest is not one of polyc's") from None
    if data.get("format") != FORMAT:
        raise BuildError(f"{folder} has format {data.get('format')!r}; this polyc reads format {FORMAT}")
    if _checksum(data) != claimed:
        raise BuildError(f"{folder} is damaged: the manifest's checksum does not match")
    return dict(data)


def _checksum(manifest: dict[str, Any]) -> str:
    """Of a manifest without its own checksum."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _load(folder: Path, data: dict[str, Any], report: Report, check_weights: CheckWeights) -> Model:
    symbols = list(data["symbols"])
    if not all(isinstance(s, str) and SYMBOL.fullmatch(s) for s in symbols):
        raise ValueError("bad symbol")
    host_sizes = [int(h["size"]) for h in data["host"]]
    parts = _cut(_read(folder, HOST, data["files"][HOST]), host_sizes)
    hosts = [
        _control(folder, k, h, blob, check_weights) if "bodies" in h else _host(h, blob)
        for k, (h, blob) in enumerate(zip(data["host"], parts))
    ]
    plan = Plan.from_json(json.dumps(data["plan"]))
    for symbol, name in plan.external.items():
        check_registered(symbol, name)
    formulas, table = _read_formulas(data, plan)
    check_plan(plan, {*symbols, *plan.external}, len(hosts), table)
    name, weights = str(data["name"]), _map_weights(folder, data["files"][WEIGHTS], plan.weight_bytes, check_weights)

    def read(file: str, sizes: Sequence[int] | None) -> list[bytes]:
        content = _read(folder, file, data["files"][file])
        return [content] if sizes is None else _cut(content, sizes)

    backend = named(str(data.get("backend", UNNAMED)))
    code = backend.load(data, plan, read)
    _restore(report, data["report"])
    misfit = backend.misfit(code)
    if misfit and not code.sources:
        raise BuildError(f"{misfit}; compile the ONNX file here")
    if misfit:
        with report.stage("recompile"):
            code, plan = recompiled(code, symbols, plan, len(hosts))
        report.peak, report.bound = plan.peak, plan.bound
        report.notes.append(f"{misfit}: its kernels were compiled again")
    if formulas is not None:
        from polyc.graph_driver.running.all_sizes import AllSizes

        return Model(name, AllSizes(Built(formulas, weights, hosts), code, report.notes), report)
    return Model(name, FixedSizes(Built(plan, weights, hosts), code, report.notes), report)


def _read_formulas(data: dict[str, Any], plan: Plan[int]) -> tuple[Plan | None, int]:
    """The plan of formulas behind `plan`, and the bytes of a run's table."""
    if "symbolic" not in data:
        return None, 0
    from polyc.graph_driver.planning.formulas import formulas_from_data
    from polyc.graph_driver.planning.table import Table

    formulas = formulas_from_data(data["symbolic"], plan)
    return formulas, 8 * Table(formulas).entries


def _restore(report: Report, data: dict[str, Any]) -> None:
    """What the manifest says of the compilation, of the types that a report has. Raises `ValueError`."""
    for key, value in data.items():
        known = getattr(report, key, value)
        texts = not isinstance(value, list) or key == "host" or all(isinstance(v, str) for v in value)
        if type(value) is not type(known) or not texts:
            raise ValueError(f"report of '{key}'")
        setattr(report, key, value)
    report.host = [(str(h["operator"]), str(h["node"]), str(h["reason"])) for h in data["host"]]


def _control(folder: Path, number: int, entry: dict[str, Any], blob: bytes, check_weights: CheckWeights) -> ControlNode:
    """A step of control flow with its bodies, which must be those that were saved with it."""
    bodies: list[Model | None] = []
    for k, checksum in enumerate(entry["bodies"]):
        if checksum is None:
            bodies.append(None)
            continue
        place = folder / f"body_{number}_{k}"
        manifest = _manifest(place)
        if _checksum(manifest) != checksum:
            raise BuildError(f"{folder} is damaged: {place.name} belongs to another model")
        bodies.append(_load(place, manifest, Report(), check_weights))
    return ControlNode(
        str(entry["kind"]), str(entry["name"]), entry["course"], bodies, _host(entry, blob) if blob else None
    )


def _host(entry: dict[str, Any], blob: bytes) -> HostNode:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    from polyc.graph_driver.host.reference import HostNode

    try:
        proto = onnx.ModelProto.FromString(blob)
    except (DecodeError, RuntimeError) as error:
        raise ValueError(f"host operator: {error}") from None
    return HostNode(str(entry["kind"]), str(entry["name"]), proto)


def _cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    if any(n < 0 for n in sizes) or sum(sizes) != len(data):
        raise ValueError("sizes of parts")
    out, start = [], 0
    for n in sizes:
        out.append(data[start : start + n])
        start += n
    return out


def _read(folder: Path, name: str, entry: dict[str, Any]) -> bytes:
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        raise BuildError(f"{folder} is damaged: {name}: {error.strerror}") from None
    _check_digest(folder, name, data, entry)
    return data


def _check_digest(folder: Path, name: str, data: Any, entry: dict[str, Any]) -> None:
    if len(data) != entry["bytes"]:
        raise BuildError(f"{folder} is damaged: {name} has {len(data)} bytes, expected {entry['bytes']}")
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise BuildError(f"{folder} is damaged: the checksum of {name} does not match")


def _map_weights(folder: Path, entry: dict[str, Any], size: int, check: CheckWeights) -> np.ndarray:
    if size != entry["bytes"] or size > MAX_TENSOR_BYTES:
        raise ValueError("size of the weights")
    if size == 0:
        with contextlib.suppress(OSError):
            if (folder / WEIGHTS).stat().st_size == 0:
                return aligned_bytes(0)
        raise BuildError(f"{folder} is damaged: {WEIGHTS} is missing or not empty")
    try:
        weights = np.memmap(folder / WEIGHTS, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise BuildError(f"{folder} is damaged: {WEIGHTS}: {error}") from None
    plain = np.asarray(weights)
    check(folder, WEIGHTS, plain.data, entry)
    return plain
