"""The key of a finished program: everything that decides about it, the content of the model first.

What cannot be written down (a cost function, a builder of operators that this process has registered) has no key:
such a model is compiled each time. A key too many costs a compilation, one too few a wrong result: what is not known
to have no effect is part of the key.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyc.graph_driver.backends.protocol import Platform
from polyc.graph_driver.known.compiler import identity
from polyc.graph_driver.options import CompileOptions
from polyc.graph_driver.worker import tuned as use

FORMAT = 1
"""Of entries: another one, other keys."""

WITHOUT_EFFECT = frozenset({"progress"})
"""Options that say nothing about the program."""

VARIABLES_WITHOUT_EFFECT = frozenset({
    "POLYC_CACHE", "POLYC_CACHE_SIZE", "POLYC_CACHE_WRITE", "POLYC_CACHE_KEY", "POLYC_CACHE_LOG", "POLYC_TRUST",
    "POLYC_PROGRAMS", "POLYC_WORKERS", "POLYC_DEBUG", "POLYC_OPENCL",
})  # fmt: skip
"""Variables of the environment that say where things are and who works on them; all others of polyc decide."""

COMPILERS = ("gcc", "clang", "cc", "g++", "clang++")


class NoKey(Exception):
    """Something decides about the program that has no text."""


def key_of(content: str, platform: Platform, options: CompileOptions) -> str:
    """The key of the program that `options` make of a model of this content.

    Raises:
        NoKey: it has none.
    """
    compiler = identity()
    if compiler is None:
        raise NoKey("polyc's own files have changed since this process started")
    parts = [
        f"program {FORMAT}",
        content,
        compiler,
        *platform.key,
        repr(platform.host),
        _environment(platform),
    ]
    parts += [f"{f.name}={_text(getattr(options, f.name))}" for f in fields(options) if f.name not in WITHOUT_EFFECT]
    parts += _registered()
    with use.tuned(options.tuned):
        return use.keyed(hashed(*parts))


def hashed(*parts: str) -> str:
    """The hash of texts; versions are part of the compiler's identity."""
    digest = hashlib.sha256()
    for data in (part.encode("utf-8", "surrogatepass") for part in parts):
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _environment(platform: Platform) -> str:
    """Variables that decide; and the C compilers, where the code of a model comes from one."""
    found = {n: v for n, v in os.environ.items() if n.startswith("POLYC_") and n not in VARIABLES_WITHOUT_EFFECT}
    if not platform.backend.calls_compilers:
        return repr(sorted(found.items()))
    from polyc.emit.c import cc

    chosen = [os.environ.get("CC", ""), os.environ.get("CXX", "")]
    tools = [(name, _tool(name)) for name in (*chosen, *COMPILERS) if name]
    return repr((sorted(found.items()), chosen, tools, cc.FLAGS))


def _tool(name: str) -> tuple[str, int, int] | None:
    path = shutil.which(name)
    if path is None:
        return None
    real = os.path.realpath(path)
    about = os.stat(real)
    return real, about.st_size, about.st_mtime_ns


def _registered() -> Iterator[str]:
    """What this process has registered, in order: C functions by their digests.

    Raises:
        NoKey: builders of operators, or functions with a cost of their own, are Python code.
    """
    operators = sys.modules.get("polyc.graph_driver.operators.registry")
    if operators is not None and operators.others():
        raise NoKey("builders of operators are registered")
    external = sys.modules.get("polyc.graph_driver.graph.external")
    for made in () if external is None else external.all_registered():
        if made.cost is not None:
            raise NoKey(f"the external function '{made.name}' has a cost of its own")
        yield f"external {made.name} {made.symbol} {made.operator} {made.device} {made.layout}"


def _text(value: Any) -> str:
    """A value such that different ones have different texts, by type and exactly. Raises `NoKey`."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return f"{kind.__name__}:{value!r}"
    if kind is float:
        return f"float:{struct.pack('<d', value).hex()}"
    if kind is bytes:
        return f"bytes:{hashlib.sha256(value).hexdigest()}"
    if kind in (tuple, list):
        return f"{kind.__name__}[{','.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"map[{','.join(f'{_text(k)}={_text(v)}' for k, v in value.items())}]"
    if is_dataclass(value) and not isinstance(value, type):  # a machine
        inside = ",".join(f"{f.name}={_text(getattr(value, f.name))}" for f in fields(value))
        return f"{kind.__module__}.{kind.__qualname__}({inside})"
    if isinstance(value, Path):
        return f"path:{str(value)!r}"
    if kind is np.ndarray or isinstance(value, np.generic):
        return _array_text(np.asarray(value))
    raise NoKey(f"{kind.__name__} has no text")


def _array_text(value: np.ndarray) -> str:
    if value.dtype.hasobject or value.dtype.names is not None:
        raise NoKey("arrays of Python objects have no text")
    data = hashlib.sha256(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data).hexdigest()
    return f"array:{value.dtype!r}{value.dtype.str}{value.shape}{data}"
