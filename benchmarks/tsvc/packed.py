"""Packed instructions in machine code, found alike in the objects of all compilers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_ARITHMETIC = r"v?(?:add|sub|mul|div|max|min|sqrt|cmp\w*?|fn?m(?:add|sub)\d*)p[sd]"
_INTEGER = r"vp(?:add|sub|mul\w*|max\w|min\w|cmp\w*)[bwdq]"
_MOVED = r"vp?(?:gather|scatter|compress|expand)\w*|vpblendm\w|vblendmp[sd]|vp?blendv\w*"
_PACKED = re.compile(rf"\t(?:{_ARITHMETIC}|{_INTEGER}|{_MOVED})\b.*%[xyz]mm")
_COPIED = re.compile(r"\tv?mov\w*\b.*%[yz]mm\d+(?:\{%k\d\})?,.*\(|\bmemcpy|\bmemset|\bmemmove")


def functions(image: Path) -> dict[str, str]:
    """The disassembly of an object's functions by name."""
    text = subprocess.run(
        ["objdump", "-dr", "--no-show-raw-insn", str(image)], check=True, capture_output=True, text=True
    )
    parts = re.split(r"^[0-9a-f]+ <([^>]+)>:$", text.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def is_packed(code: str) -> bool:
    """Whether code computes with vectors, or, where it only moves elements, moves whole vectors of them."""
    return bool(_PACKED.search(code) or _COPIED.search(code))
