"""The page on training runs from top to bottom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    script = tmp_path / "page.py"
    script.write_text("".join(b.split("```", 1)[0] for b in text.split("```python\n")[1:]), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "more than the memory limit of 100 B" in done.stdout
