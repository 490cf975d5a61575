"""Every example runs as its user would run it."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import prepared_commands

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("__init__.py", "decoder.py", "fetch.py", "ocr.py", "pictures.py")
SCRIPTS = sorted(p.name for p in (ROOT / "examples").glob("*.py") if p.name not in PARTS)
LONG = ("demo.py", "generate.py")  # compile whole networks
NEEDS = {"digits_torch.py": ("torch", "sklearn")}
STEPS = {"digits.py": 60, "digits_torch.py": 60}  # each time; as many as users get among the long tests
DRAWN = ("convolution.py", "digits.py", "heat.py", "repair.py", "roofline.py", "time_tiles.py")  # with `--picture`


def _learned(said: str, least: float) -> None:
    """Two networks, as in eager mode (not to the last bit on every processor), and both know more than `least` percent
    of what they have not seen."""
    apart = [float(line.split("at most ")[1].split()[0]) for line in said.splitlines() if "at most" in line]
    right = [float(line.split("%")[0]) for line in said.splitlines() if "% of" in line]
    assert len(apart) == len(right) == 2 and max(apart) < 0.1 and min(right) > least, said


@pytest.mark.parametrize("script", [pytest.param(s, marks=pytest.mark.long) if s in LONG else s for s in SCRIPTS])
def test_example_runs(script: str, tmp_path: Path) -> None:
    said = _run(script, ["--steps", str(STEPS[script])] if script in STEPS else [], tmp_path / "picture.svg")
    if script == "digits_torch.py":
        _learned(said, 60)


@pytest.mark.long
@pytest.mark.parametrize("script", STEPS)
def test_example_runs_to_its_end(script: str, tmp_path: Path) -> None:
    said = _run(script, [], tmp_path / "picture.svg")
    if script == "digits_torch.py":
        _learned(said, 95)


def _run(script: str, asked: list[str], picture: Path) -> str:
    """What an example prints; its picture is looked at, too."""
    for package in NEEDS.get(script, ()):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    asked = [*asked, "--picture", str(picture)] if script in DRAWN else asked
    done = prepared_commands.run(str(ROOT / "examples" / script), *asked, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr
    if script in DRAWN:
        drawn = ET.parse(picture).getroot()
        assert drawn.tag.endswith("}svg") and len(list(drawn)) > 5
        assert (ROOT / "docs" / "pictures" / script).with_suffix(".svg").exists()
    return done.stdout


def test_the_page_of_examples_names_each() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert [s for s in SCRIPTS if f"`examples/{s}`" not in page] == []


@pytest.mark.parametrize("block, said", [(1, "for j.in"), (2, "shift=1 makes it legal")])
def test_blocks_of_the_readme_run_in_any_folder(tmp_path: Path, block: int, said: str) -> None:
    """As they stand (from a file: operators need their source)."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    script = tmp_path / "readme_example.py"
    script.write_text(text.split("```python\n")[block].split("```", 1)[0], encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert said in done.stdout


def test_the_first_operator_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """All Python blocks of the walk-through as one file."""
    text = (ROOT / "docs" / "first-operator.md").read_text(encoding="utf-8")
    script = tmp_path / "first_operator.py"
    script.write_text("".join(b.split("```", 1)[0] for b in text.split("```python\n")[1:]), encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "X is f32, the argument is f64: convert it with .astype" in done.stdout
    assert "is illegal" in done.stdout or "not nested" in done.stdout
