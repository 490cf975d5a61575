"""The page in a browser: it opens without a word on the console, folds, lights up, and draws what isl says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import checked, opened
from brute_space import edges, order
from operators import POLYBENCH, automatic, document, skewed_jacobi, tiled_matmul

from polyc.graph_driver.html.page import page

SHOWN: dict[str, Callable[[], Any]] = {"tiled": tiled_matmul, "skewed": skewed_jacobi}


def compare(schedule: Any, tmp_path: Path) -> None:
    """Open the page of `schedule` and compare what it draws with enumeration."""
    path = tmp_path / "page.html"
    path.write_text(page(document(schedule), "test"), encoding="utf-8")
    assert path.stat().st_size < 2_000_000
    found = checked(path, tmp_path / "profile")
    scop, compared = schedule.scop, 0
    for space in found["spaces"]:
        sizes = dict.fromkeys(scop.params, space["size"])
        if not space.get("legal") or space["clipped"]:
            continue
        assert space["order"] == order(scop, schedule.tree, sizes)
        assert space["edges"] == edges(scop, sizes)
        compared += 1
    assert compared


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_draws_what_isl_enumerates(name: str, tmp_path: Path) -> None:
    compare(SHOWN[name](), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["matmul", *POLYBENCH])
def test_every_example(name: str, tmp_path: Path) -> None:
    compare(automatic(name), tmp_path)


HOSTILE = """
from polyc import dims, f32, op, zeros

N = dims("N")


@op
def hostile(A: f32[N]) -> f32[N]:
    # </script><script>document.title = "taken"</script><img src=x onerror="document.title='taken'">
    B = zeros((N,), f32)  # {{script}} {{data}} <!-- ]]> \\u2028
    for i in range(N):
        B[i] = A[i] + 1.0  # '"`&lt;
    return B
"""


def test_nothing_in_a_source_file_acts(tmp_path: Path) -> None:
    from polyc.graph_driver.cli.inspect import load_operator
    from polyc.graph_driver.worker.compile_operator import auto_schedule

    (tmp_path / "bad.py").write_text(HOSTILE, encoding="utf-8")
    schedule = auto_schedule(load_operator(f"{tmp_path / 'bad.py'}:hostile").scop())
    schedule = schedule.noted("</pre><script>document.title = 'taken'</script>")
    path = tmp_path / "page.html"
    path.write_text(page(document(schedule), "</title><script>document.title='taken'</script>"), encoding="utf-8")
    checked(path, tmp_path / "profile")
    dom = opened(path, tmp_path / "profile", "why")
    assert dom.count("<script") == 2 and "<img" not in dom and "taken&lt;" not in dom.partition("</head>")[0]
    assert "&lt;/script&gt;&lt;script&gt;document.title" in dom  # shown as the text that it is
