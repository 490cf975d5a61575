"""Nobody but the back ends asks what a back end is: no names of kinds, no classes of GPUs, no modules of theirs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

DRIVER = Path(__file__).resolve().parents[2] / "graph_driver"
KINDS = {"llvm", "c", "c99", "gpu", "cuda", "opencl"}
CLASSES = {"GpuTarget", "GpuKernel", "GpuCode", "GpuExecutor", "GpuBackend", "CBackend", "LlvmBackend", "C99Backend"}
OBJECTS = {"GPU", "LLVM", "C99", "C"}
ASKING = {"is_gpu", "gpu_target", "compile_gpu"}

LEFT = {
    "cli/compile.py": "`--target c` asks for files, not for a back end",
    "cli/doctor.py": "devices and compilers of GPUs that are here",
    "compile_model.py": "the type of a target that users give",
    "options.py": "the type of a target that users give",
}
"""Files that may, and why."""


def questions(tree: ast.AST) -> Iterator[str]:
    """What a file asks, a line each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = f"{node.module}."
            if module.startswith(("polyc.emit.gpu.", "polyc.graph_driver.backends.gpu.")):
                yield f"{node.lineno}: imports {node.module}"
            elif CLASSES & {a.name for a in node.names}:
                yield f"{node.lineno}: imports {', '.join(sorted(CLASSES & {a.name for a in node.names}))}"
        elif isinstance(node, ast.Name) and node.id in ASKING:
            yield f"{node.lineno}: {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr == "gpu":
            yield f"{node.lineno}: .gpu"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            known = [ast.unparse(s) for s in sides if isinstance(s, ast.Name) and s.id in OBJECTS]
            values = [c.value for s in sides for c in ast.walk(s) if isinstance(c, ast.Constant)]
            others = " ".join(ast.unparse(s) for s in sides)
            if known or (KINDS & {v for v in values if isinstance(v, str)} and _about_targets(others)):
                yield f"{node.lineno}: {ast.unparse(node)}"


def _about_targets(text: str) -> bool:
    return any(word in text for word in ("target", "backend", "platform"))


def test_nobody_asks_what_a_back_end_is() -> None:
    found = {}
    for path in sorted(DRIVER.rglob("*.py")):
        name = path.relative_to(DRIVER).as_posix()
        if not name.startswith("backends/") and (asked := list(questions(ast.parse(path.read_text("utf-8"))))):
            found[name] = asked
    assert {name: asked for name, asked in found.items() if name not in LEFT} == {}
    assert set(LEFT) == set(found)  # one that is gone stays gone


def test_back_ends_are_known_before_what_they_need_is_loaded() -> None:
    """A compiled model starts without strategies, and one of a CPU without a GPU's devices."""
    code = (
        "import sys; from polyc.graph_driver.artifacts.package import load; from polyc.graph_driver.backends import "
        "registry; registry.platform_of('cpu'); registry.found('sm_80'); print(*sorted(m for m in sys.modules if "
        "m.startswith(('polyc.scheduler.strategies', 'polyc.emit.gpu.devices', 'polyc.emit.lowering'))))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=DRIVER.parent)
    assert out.stdout.split() == []


def test_questions_are_seen() -> None:
    asked = """
from polyc.emit.gpu import targets
from polyc.emit.gpu.kernel import GpuKernel
from polyc.poly.target import GpuTarget, Target
if platform.backend.name == "c99" or platform.backend is GPU or is_gpu(target) or platform.gpu is not None:
    pass
if arguments.target in ("c", "c99") or step.kind == "kernel" or stage == "c":
    pass
"""
    assert sorted(line.split(": ")[1] for line in questions(ast.parse(asked))) == [
        ".gpu",
        "arguments.target in ('c', 'c99')",
        "imports GpuTarget",
        "imports polyc.emit.gpu",
        "imports polyc.emit.gpu.kernel",
        "is_gpu",
        "platform.backend is GPU",
        "platform.backend.name == 'c99'",
    ]
