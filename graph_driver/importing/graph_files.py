"""Graphs as files that a person can read and change: `NAME.graph`, and the larger arrays in `NAME.graph.npz` or, of all
graphs of a folder, in `arrays.npz`."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyc.graph_driver.graph.errors import GraphError
from polyc.graph_driver.graph.exact_text import TYPE_NAMES, Part, exact_graph, parse_graph, parts
from polyc.graph_driver.verifying.node_rules import is_of_protobuf
from polyc.poly.dtypes import BY_NAME
from polyc.poly.errors import BuildError, ModelError

if TYPE_CHECKING:
    from polyc.graph_driver.graph.ir import Graph

SUFFIX = ".graph"
STAGE = ".stage"
"""Of kernels, memory and plan (`polyc.graph_driver.compiling.staged`)."""
SHARED = "arrays.npz"
"""Arrays of all graphs of a folder."""


def is_graph_file(path: str | Path) -> bool:
    """Whether a path is that of a graph as text."""
    return Path(path).suffix == SUFFIX


def is_stage_file(path: str | Path) -> bool:
    """Whether a path is that of a stage after the graph."""
    return Path(path).suffix == STAGE


def write_graph(graph: Graph, path: Path) -> None:
    """The graph as exact text, and beside it its arrays of more than a few bytes, each under its SHA-256.

    Raises:
        BuildError: the files cannot be written.
        GraphError: an attribute has no text.
    """
    write_graphs({path: exact_graph(graph)}, parts(graph), _beside(path))


def write_graphs(texts: Mapping[Path, str], arrays: Mapping[str, Part], beside: Path) -> None:
    """Several graphs of one folder, and their arrays once: `beside` is `arrays.npz` there. Raises `BuildError`."""
    try:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        with zipfile.ZipFile(beside, "w") as archive:
            for key, part in arrays.items():
                kind = "bytes" if isinstance(part, bytes) else TYPE_NAMES[part.dtype]
                whole = part if isinstance(part, np.ndarray) else np.frombuffer(part, np.uint8)
                data = np.ascontiguousarray(whole).view(np.uint8)  # NumPy's files know not all types
                info = zipfile.ZipInfo(f"{key.removeprefix('sha256 ')}.{kind}.npy")  # a fixed date: the same bytes
                with archive.open(info, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, data, allow_pickle=False)
    except OSError as error:
        raise BuildError(f"cannot write {beside.parent}: {error.strerror or error}") from None


def read_graph(path: Path) -> Graph:
    """The graph that `write_graph` has written, or that somebody has changed since.

    Raises:
        ModelError: there is no such file, it is damaged, or the text is none of a graph.
    """
    try:
        text = path.read_text(encoding="utf-8")
        given = {k: v for file in (path.with_name(SHARED), _beside(path)) for k, v in _parts(file).items()}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile):
        raise ModelError(f"cannot read {path}: it or the arrays beside it are damaged") from None
    try:
        graph = parse_graph(text, given)
        for node in graph.nodes:
            if node.proto is not None and not is_of_protobuf(node, node.op_type):
                node.proto = None  # somebody has changed the node
        return graph
    except GraphError as error:
        raise ModelError(f"{path}: {error}") from None


def _parts(path: Path) -> dict[str, Part]:
    """Arrays and protobufs by the names that the text has for them."""
    found: dict[str, Part] = {}
    if not path.is_file():
        return found
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            key, kind, _ = name.split(".")
            with archive.open(name) as file:
                data = np.lib.format.read_array(file, allow_pickle=False)
            found[f"sha256 {key}"] = data.tobytes() if kind == "bytes" else data.view(BY_NAME[kind].np)
    return found


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.npz")
