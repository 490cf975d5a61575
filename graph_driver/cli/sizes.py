"""What commands do about sizes of which nothing was said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from polyc.graph_driver.compiling.sensible import chosen_text, sensible_sizes
from polyc.graph_driver.options import CompileOptions


def with_sizes(source: Path, options: CompileOptions) -> tuple[CompileOptions, str]:
    """The options with a number for each size that nothing fixes, and a line that says which were chosen.

    Raises:
        ModelError: the file is broken, or no sizes fit.
    """
    sizes = sensible_sizes(source, options)
    if not sizes:
        return options, ""
    return replace(options, dims={**options.dims, **sizes}), chosen_text(sizes)
