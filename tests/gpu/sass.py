"""Machine code as text: instructions of the innermost loops."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest


@cache
def disassembler() -> str | None:
    """`nvdisasm`, of the toolkit or of the package nvidia-cuda-nvdisasm."""
    found = shutil.which("nvdisasm")
    if found is None:
        try:
            import nvidia
        except ImportError:
            return None
        found = next((str(p) for root in nvidia.__path__ for p in Path(root).glob("**/bin/nvdisasm")), None)
    return found


needs_disassembler = pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: machine code cannot be read")

_LABEL = re.compile(r"^\s*(\.L_x?_?\d+):")
_CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")


def kernels(image: bytes, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Of each kernel its instructions and labels: (opcode, operands) or (label, "")."""
    path = folder / "kernels.cubin"
    path.write_bytes(image)
    text = subprocess.run([disassembler() or "", "-c", str(path)], capture_output=True, text=True, check=True).stdout
    out: dict[str, list[tuple[str, str]]] = {}
    for part in re.split(r"\n\.text\.", text)[1:]:
        lines = out.setdefault(part.partition(":")[0], [])
        for line in part.splitlines():
            label, code = _LABEL.match(line), _CODE.search(line)
            if label is not None:
                lines.append((label[1], ""))
            elif code is not None and "@!PT" not in line:  # (never executed: fillers before LDGSTS)
                lines.append((code[1], code[2]))
    return out


def loops(code: list[tuple[str, str]]) -> list[Counter[str]]:
    """The instructions of each innermost loop: from a label to a jump back to it, no other such jump inside."""
    at = {name: k for k, (name, _) in enumerate(code) if name.startswith(".L")}
    spans = []
    for k, (name, operands) in enumerate(code):
        target = re.search(r"\(?(\.L_x?_?\d+)", operands) if name.startswith("BRA") else None
        if target is not None and at.get(target[1], k) < k:
            spans.append((at[target[1]], k))
    inner = [s for s in spans if not any(s != t and s[0] <= t[0] and t[1] <= s[1] for t in spans)]
    return [Counter(name for name, _ in code[a : b + 1] if not name.startswith(".L")) for a, b in inner]


def hottest(code: list[tuple[str, str]], what: str = "FFMA") -> Counter[str]:
    """The innermost loop with the most instructions of a kind."""
    return max(loops(code), key=lambda c: sum(n for name, n in c.items() if name.startswith(what)))
