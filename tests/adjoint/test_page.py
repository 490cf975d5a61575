"""The examples of docs/derivatives.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "derivatives.md"


def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks))
    scope = {"__name__": "page", "__file__": str(file)}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    assert len(blocks) > 1
