"""The schedule tree as HTML without a script: what `assets/tree.js` draws, for outputs of a notebook."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_KINDS = {
    "parallel": "iterations run on all threads",
    "vector": "iterations run in vector lanes",
    "unroll": "iterations are written out",
}
_WORDS = re.compile(
    r"(?P<com>#.*)|(?P<str>\"[^\"]*\"|'[^']*')|(?P<num>\b\d+(?:\.\d+)?(?:e[-+]?\d+)?\b)"
    r"|(?P<key>\b(?:def|for|in|range|if|else|elif|return|and|or|not|where|pass|while|grid)\b)"
    r"|(?P<typ>\b(?:[fiu](?:8|16|32|64)|bf16|bool)(?:x\d+)?\b)|(?P<wrd>[A-Za-z_@][\w.]*)",
    re.IGNORECASE,
)


def tree_html(root: Mapping[str, Any], free: Mapping[str, Any]) -> str:
    """The tree of `tree_data`; `free` as `operator_page.free_data` gives it."""
    return f'<ul class="tree" role="tree">{"".join(_Drawing(free).nodes(root))}</ul>'


def coloured(text: str) -> str:
    """An expression with the colours of the pages."""
    out, at = [], 0
    for word in _WORDS.finditer(text):
        out.append(escape(text[at : word.start()]))
        shown = escape(word[0])
        out.append(shown if word.lastgroup == "wrd" else f'<span class="t-{word.lastgroup}">{shown}</span>')
        at = word.end()
    return "".join([*out, escape(text[at:])])


class _Drawing:
    def __init__(self, free: Mapping[str, Any]) -> None:
        self.free = free

    def nodes(self, node: Mapping[str, Any]) -> list[str]:
        """The items of a node: a filter shows only what it cuts, a leaf's statements are items of their own."""
        kind = node["type"]
        if kind == "leaf":
            return [_item([f"{_span('stmtname', s['name'])} {_code(s['text'])}"], []) for s in node["statements"]]
        below = [item for child in node["children"] for item in self.nodes(child)]
        if kind == "filter":
            rows = [
                f"{_span('kw', 'only')} {_code(text)} {_span('dim', f'for {s}')}" for s, text in node["parts"].items()
            ]
            return [_item(rows, below)] if rows else below
        if kind == "sequence":
            return [_item([f"{_span('kw', 'sequence')} {_span('dim', 'one after another')}"], below)]
        if kind == "promote":
            return [_item([_promotion(node)], below)]
        members = node["members"]
        names = {m["name"] for m in members}
        any_order = any(names <= set(band) for band in self.free["bands"])
        style, title = "several", "band: the order of these loops matters"
        if any_order:
            style, title = "several permutable", "permutable band: any order of these loops is legal"
        if len(members) == 1:
            style, title = "", ""
        return [_item([self.member(m) for m in members], below, style, title)]

    def member(self, m: Mapping[str, Any]) -> str:
        values = m["values"]
        shown = f"{_span('kw', 'for')} <b>{escape(m['name'])}</b>"
        if len(values) == 1 and values[0][0] != m["name"]:
            shown += f" = {_code(values[0][0])}"
        elif len(values) > 1:
            texts = (f"{_code(v)} {_span('dim', 'for ' + '/'.join(names))}" for v, names in values)
            shown += f" = {', '.join(texts)}"
        if m["most"]:
            shown += f' <span class="most" title="takes at most so many values">(≤ {escape(str(m["most"]))})</span>'
        if m["kind"] != "serial":
            text = f"{m['kind']} {m['factor']}" if m["factor"] else m["kind"]
            kind = m["kind"].split(".")[0]
            shown += " " + _badge(kind, text, _KINDS.get(m["kind"], "bound to this axis of the device"))
        elif m["name"] in self.free["parallel"]:
            shown += " " + _badge("free", "free", "carries no dependence")
        if m["name"] in self.free["sums"]:
            shown += " " + _badge("free", "sum", "carries only the updates of a reduction")
        return shown


def _promotion(n: Mapping[str, Any]) -> str:
    moves = [text for text, on in (("copy in", n["in"]), ("copy out", n["out"])) if on]
    shown = f"{_span('kw', 'promote' if moves else 'contract')} <b>{escape(n['array'])}</b>"
    shown += _code(f"[{n['box']}]") if n["box"] else ""
    buffer = f"{n['space']} {n['buffer']}"
    shown += f" {_span('dim', 'to')} {_badge('buffer', buffer, 'stands for a part of the array')}"
    if n["layout"]:
        shown += " " + _badge("buffer", "packed", f"stored in this order: {n['layout']}")
    return shown + (f" {_span('dim', ', '.join(moves))}" if moves else "")


def _item(rows: Sequence[str], below: Sequence[str], style: str = "", title: str = "") -> str:
    lines = "".join(f'<div class="row">{row}</div>' for row in rows)
    about = f' class="{style}"' if style else ""
    about += f' title="{escape(title)}"' if title else ""
    if not below:
        return f'<li role="none"{about}><div class="rows">{lines}</div></li>'
    return (
        f'<li role="none"{about}><details open=""><summary class="rows">{lines}</summary>'
        f'<ul role="group">{"".join(below)}</ul></details></li>'
    )


def _span(style: str, text: str) -> str:
    return f'<span class="{style}">{escape(text)}</span>'


def _code(text: str) -> str:
    return f"<code>{coloured(text)}</code>"


def _badge(kind: str, text: str, title: str) -> str:
    kind = re.sub(r"\W", "", kind)
    return f'<span class="badge b-{kind}" title="{escape(title)}">{escape(text)}</span>'
