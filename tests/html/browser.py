"""Pages in headless Chromium: the document after its scripts have run, and what the console said."""

from __future__ import annotations

import functools
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")


@functools.cache
def chromium() -> str:
    """The browser's path; skips the test when there is none (POLYC_CHROMIUM names one)."""
    found = os.environ.get("POLYC_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium here (set POLYC_CHROMIUM to its path)")
    return found


def opened(page: Path, profile: Path, part: str = "selftest", extra: tuple[str, ...] = ()) -> str:
    """The DOM of `page#part` as text. Fails when the console holds an error."""
    command = [
        chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
        f"--user-data-dir={profile}", "--virtual-time-budget=20000", *extra, "--dump-dom", f"{page.as_uri()}#{part}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not said, said
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def checked(page: Path, profile: Path) -> dict[str, Any]:
    """What the page's own test found; all its checks must hold."""
    dom = opened(page, profile)
    found = re.search(r'<pre id="selftest">(.*?)</pre>', dom, re.S)
    assert found, "the page's self-test did not run"
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert "error" not in result, result["error"]
    assert result["checks"] and all(result["checks"].values()), result["checks"]
    return result
