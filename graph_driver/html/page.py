"""A document as one page that needs nothing else: no network, no fonts, no other files.

The data stands in a script element that no browser runs, with `<`, `>` and `&` escaped; the page's
script only ever makes text nodes of it; and a content security policy allows exactly the one
script and the one style sheet that polyc wrote. So nothing in a source file or a model can act.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyc.poly.errors import BuildError

SCRIPTS = {
    "operator": ("base.js", "text.js", "links.js", "tree.js", "code.js", "affine.js", "points.js", "controls.js",
                 "drawing.js", "cost.js", "mapping.js", "operator.js", "selftest_operator.js"),
    "model": ("base.js", "graph.js", "memory.js", "roofline.js", "model.js", "selftest_model.js"),
}  # fmt: skip
_HOLE = re.compile(r"\{\{(\w+)\}\}")


def page(document: Mapping[str, Any], title: str) -> str:
    """The HTML text of a document of kind `operator` or `model`."""
    kind = str(document["kind"])
    script = '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS[kind])) + "\n})();\n"
    style = _asset("style.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "title": html.escape(title),
        "policy": html.escape(policy),
        "style": style,
        "body": _asset(f"{kind}.html"),
        "data": data_text(document),
        "script": script,
    }
    return _HOLE.sub(lambda hole: parts[hole[1]], _asset("page.html"))


def data_text(document: Mapping[str, Any]) -> str:
    """JSON that cannot end the element around it."""
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write_page(path: Path, text: str) -> None:
    """Raises `BuildError` when the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BuildError(f"cannot write {path}: {error.strerror}") from None


def _asset(name: str) -> str:
    return files("polyc.graph_driver.html").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
