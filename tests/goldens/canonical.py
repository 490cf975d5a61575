"""Trees and emitted loops up to names of loops and buffers: what a golden's hash is of.

A program of steps names the loops and buffers that it makes; other names are no other schedule. So loops become `l0`,
`l1`, ... and buffers `b0`, `b1`, ... in the order in which they appear, in emitted text every declared name
`n0`, `n1`, ... Names of arguments, statements and functions stay: they are what the program means.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from itertools import count

from polyc.poly.tree import Band, Node, Promote

_NAME = r"(?P<name>[A-Za-z_]\w*)"
_QUALIFIED = r"(?:(?:__attribute__\s*\(\(.*?\)\)|__align__\(\d+\)|[A-Za-z_]\w*)\s+)+(?:\*\s*(?:\w*restrict\w*\s+)?)?"
_DECLARATIONS = (
    re.compile(rf"\s*for {_NAME} in range\("),
    re.compile(rf"\s*{_NAME}: [a-z]\w* = "),
    re.compile(rf"\s*{_NAME} = alloc_"),
    re.compile(rf"\s+(?:for \()?{_QUALIFIED}{_NAME}(?: = |\[|;)"),
)
"""Where a name is declared in loops as text (the first three) and in CUDA C and OpenCL C (the last)."""
_PARAMETER = re.compile(r"(?<=[\w*] )(\w+?)((?:__base|__at)?[,)])")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_KERNEL = re.compile(r"^(?:extern \"C\" __global__|__kernel) ", re.MULTILINE)
_REMARK = re.compile(r"^\s*(?:#.*|/\* loop .* \*/)\n", re.MULTILINE)


def canonical_tree(tree: Node) -> Node:
    """The tree with loops `l0`, `l1`, ... and buffers `b0`, `b1`, ..., parents first.

    A promotion of a buffer of a promotion around it follows that one's new name.
    """
    loops, buffers = count(), count()

    def renamed(node: Node, inside: dict[str, str]) -> Node:
        if isinstance(node, Band):
            members = tuple(replace(m, name=f"l{next(loops)}") for m in node.members)
            return Band(members, renamed(node.child, inside), node.permutable)
        if isinstance(node, Promote):
            array, buffer = inside.get(node.array, node.array), f"b{next(buffers)}"
            child = renamed(node.child, {**inside, node.buffer: buffer})
            return replace(node, array=array, buffer=buffer, child=child)
        return node.with_children(tuple(renamed(c, inside) for c in node.children()))

    return renamed(tree, {})


def canonical_loops(text: str, arguments: Collection[str]) -> str:
    """Loops as text, or a GPU's source, with declared names `n0`, `n1`, ... and without remarks that tell names.

    `arguments`: names that stay where they are parameters of kernels; other parameters are buffers that several
    kernels share.
    """
    first = _KERNEL.search(text)
    start = first.start() if first else 0
    body = _REMARK.sub("", text[start:])
    names: dict[str, str] = {}
    numbers = count()
    lines = []
    for line in body.splitlines(keepends=True):
        if _KERNEL.match(line):
            shared = (p for p, _ in _PARAMETER.findall(line) if p not in arguments and p not in names)
            names.update((p, f"n{next(numbers)}") for p in dict.fromkeys(shared))
        for form in _DECLARATIONS:
            if found := form.match(line):
                if found["name"] not in arguments and f"{found['name']}__base" not in line:
                    names[found["name"]] = f"n{next(numbers)}"
                break
        lines.append(_WORD.sub(lambda word: _renamed(word[0], names), line))
    return text[:start] + "".join(lines)


def _renamed(word: str, names: dict[str, str]) -> str:
    """The word's new name; OpenCL's pairs of base and offset are named after their array."""
    base, mark, part = word.partition("__") if word.endswith(("__base", "__at")) else (word, "", "")
    return names.get(base, base) + mark + part
