"""The worked examples of CONTRIBUTING.md run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SAID = {
    "Add an operator": "LpNormalization of f32[5, 7]",
    "Add a pass": "drop-abs: 1 absolute values\ndead-code: 1 nodes",
    "Add a strategy": 's = s.unroll("k")\ns = s.vectorize("i", lanes=8)',
    "Add a target": "",
    "Add a back end": "",
}


def sections() -> dict[str, list[tuple[str, str]]]:
    """The blocks of each section, with their languages."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {part.split("\n", 1)[0]: BLOCK.findall(part) for part in parts}


def test_every_section_has_a_program() -> None:
    assert {name for name, blocks in sections().items() if any(kind == "python" for kind, _ in blocks)} == SAID.keys()


@pytest.mark.parametrize("section", SAID)
def test_the_blocks_of_a_section_are_a_program(section: str, tmp_path: Path) -> None:
    blocks = sections()[section]
    for _, text in (b for b in blocks if b[0] == "toml"):
        name = text.split("\n", 1)[0].removeprefix("# ")
        (tmp_path / name).write_text(text, encoding="utf-8")
    script = tmp_path / "example.py"
    script.write_text("\n".join(text for kind, text in blocks if kind == "python"), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert SAID[section] in done.stdout
