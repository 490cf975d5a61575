"""`python -m polyc.graph_driver.torch_bridge.coverage`: the page that says which ATen operators polyc has."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from polyc.graph_driver.torch_bridge.aten import of_complex, table
from polyc.graph_driver.torch_bridge.backend import decompositions


def core_operators() -> Iterator[str]:
    """The operators that torch counts to its core, as `name.overload`."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = name.partition("::")
        if space != "aten":
            continue
        base, _, overload = rest.partition(".")
        found = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        if found is not None and torch.Tag.core in found.tags:
            yield f"{base}.{overload or 'default'}"


def page() -> str:
    """The page as Markdown."""
    ours, theirs = {**table(), **of_complex()}, {str(k).removeprefix("aten.") for k in decompositions()}
    rows = [
        (name, "kernels" if name in ours else "decomposed" if name in theirs else "eager") for name in core_operators()
    ]
    of = {kind: [n for n, k in rows if k == kind] for kind in ("kernels", "decomposed", "eager")}
    lines = [
        "# ATen operators", "",
        "Written by `python -m polyc.graph_driver.torch_bridge.coverage`. Of the operators that torch tags as core,",
        f"{len(of['kernels'])} have nodes of polyc's, {len(of['decomposed'])} are torch's decomposition into such, and",
        f"{len(of['eager'])} run in eager mode inside the plan. Forms of an operator that polyc has not (an element",
        "type, a mode) run in eager mode, too; the report of a compilation names them.", "",
    ]  # fmt: skip
    titles = {"kernels": "polyc's own", "decomposed": "Decomposed by torch", "eager": "In eager mode"}
    for kind, title in titles.items():
        lines += [f"## {title}", "", *(f"`{n}`" for n in of[kind]), ""]
    others = sorted(n for n in set(ours) - {n for n, _ in rows} if not n.startswith("polyc."))
    lines += ["## polyc's own beside the core", "", *(f"`{n}`" for n in others)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
