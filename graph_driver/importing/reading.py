"""A file, bytes or a protobuf as an ONNX model of operator sets that are known, its functions inlined.

Every defect is a `ModelError` of one line.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import inliner, version_converter

from polyc.graph_driver.graph.limits import MAX_NODES
from polyc.graph_driver.graph.wording import one_line
from polyc.graph_driver.importing.text_check import check_text
from polyc.graph_driver.inference.concrete import OLDEST_OPSET
from polyc.poly.errors import ModelError

MOST_LEVELS = 200  # of functions that call functions


def read(source: str | Path | onnx.ModelProto | bytes) -> tuple[onnx.ModelProto, Path | None]:
    """The protobuf and the folder of its external data (not loaded here).

    Raises:
        ModelError: no such file, or it is not an ONNX model.
    """
    if isinstance(source, onnx.ModelProto):
        return source, None
    if not isinstance(source, (str, Path, bytes)):
        raise ModelError(f"a model is a path, a ModelProto or its bytes, not {source!r:.80}")
    folder: Path | None = None
    if isinstance(source, bytes):
        data, name = source, "model"
    else:
        path = Path(source)
        folder, name = path.parent, str(source)
        try:
            if path.is_char_device() or path.is_block_device():
                raise ModelError(f"cannot read {name}: it is a device")  # /dev/zero never ends
            data = path.read_bytes()
        except (OSError, ValueError) as error:  # a NUL in a path is a ValueError
            raise ModelError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if not data:
        raise ModelError(f"{name} is empty")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise ModelError(f"{name} is not an ONNX model: {one_line(error)}") from None
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(f"{name} is not an ONNX model: it has no graph or no operator set")
    return model, folder


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """Imported operator sets; the default domain is "". Raises `ModelError` outside the known range."""
    table = {("" if o.domain == "ai.onnx" else o.domain): int(o.version) for o in model.opset_import}
    for domain, version in table.items():
        if not 1 <= version < 1 << 31:
            raise ModelError(f"version {version} of operator set '{domain or 'ai.onnx'}' makes no sense")
    if "" in table:
        newest = onnx.defs.onnx_opset_version()
        if table[""] > newest:
            raise ModelError(f"opset {table['']} is newer than opset {newest}, the newest that onnx here knows")
    return table


def readable(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int]]:
    """The model as the importer walks it, and its operator sets: text checked, not too old, without functions.

    Raises:
        ModelError: text that is not UTF-8, an unknown operator set, functions that cannot be inlined.
    """
    check_text(model)
    opsets = opsets_of(model)
    if 0 < opsets.get("", OLDEST_OPSET) < OLDEST_OPSET:
        model = _renewed(model)
        opsets = opsets_of(model)
    if model.functions:
        _check_expansion(model)
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:  # C++ raises several types on malformed functions
            raise ModelError(f"cannot inline the model's functions: {one_line(error)}") from error
        opsets = opsets_of(model)
    return model, opsets


def _check_expansion(model: onnx.ModelProto) -> None:
    """Raise `ModelError` where functions call themselves, or are more than `MAX_NODES` nodes when they are expanded."""
    functions = {(f.domain, f.name, f.overload): f.node for f in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}
    under_way: list[tuple[str, str, str]] = []

    def nodes_of(key: tuple[str, str, str]) -> int:
        if key in under_way:
            raise ModelError(f"the model's function '{key[1]}' calls itself")
        if len(under_way) > len(functions) or len(under_way) > MOST_LEVELS:
            raise ModelError(f"the model's functions call one another more than {MOST_LEVELS} levels deep")
        if key not in sizes:
            under_way.append(key)
            sizes[key] = counted(functions[key])
            under_way.pop()
        return sizes[key]

    def counted(nodes: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
            total += nodes_of(key) if key in functions else 1
            for a in node.attribute:
                for g in (*([a.g] if a.HasField("g") else ()), *a.graphs):
                    total += counted(g.node)
            if total > MAX_NODES:
                raise ModelError(f"the model becomes more than {MAX_NODES} nodes when its functions are expanded")
        return total

    counted(model.graph.node)
    for key in functions:
        nodes_of(key)


def _renewed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the oldest opset that the library reads, if onnx can convert it.

    Otherwise it stays as it is, and an operator whose form has changed since is refused by name.
    """
    try:
        return version_converter.convert_version(model, OLDEST_OPSET)
    except Exception:  # the converter raises whatever its C++ adapters do
        return model
