"""`polyc.from_functional`, `polyc.read_functional`: models from functional programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from polyc.graph_driver.compile_model import compile_model
from polyc.graph_driver.functional.parser import parse
from polyc.graph_driver.functional.recursion import as_loop
from polyc.graph_driver.functional.writer import Writer
from polyc.graph_driver.running.model import Model
from polyc.poly.errors import ModelError


def read_functional(source: str | Path, entry: str = "main") -> onnx.ModelProto:
    """A functional program as an ONNX model, which everything of polyc takes that takes a model.

    Args:
        source: a path, or the text itself (`docs/functional.md`).
        entry: the definition whose parameters are the inputs (by their names without `%`); its results are `result0`,
            `result1`, ... (the members of a tuple in order).

    Raises:
        ModelError: the file cannot be read, the text is no program, or no model computes it; the line is named.
    """
    if isinstance(source, str) and ("\\n" in source or "{" in source):
        return Writer(parse(source), as_loop).model(f"@{entry}")
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}") from None
    return Writer(parse(text, str(source)), as_loop).model(f"@{entry}")


def from_functional(source: str | Path, entry: str = "main", **options: Any) -> Model:
    """Compile a functional program.

    Args:
        source: a path, or the text itself (`docs/functional.md`).
        entry: the definition to compile.
        options: those of `polyc.compile_model`.

    Raises:
        ModelError: as `read_functional`, or as `polyc.compile_model`.
    """
    return compile_model(read_functional(source, entry), **options)
