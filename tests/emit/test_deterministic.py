"""The same operator gives byte-identical text in every process, whatever Python's hash seed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import sys
sys.path[:0] = ["tests/emit"]
import hand_ir, random_ir, test_kernel, hashlib
from polyc.emit import targets
from polyc.emit.c.source import to_c
from polyc.emit.compile import compile_kernel
from polyc.emit.llvm.ir import to_llvm
from polyc.scheduler.strategies.auto import automatic

texts = []
for make in hand_ir.ALL.values():
    texts += [to_llvm(make(), targets.host()), to_c(make(), targets.host())]
fn = random_ir.expression_function(5, 8)
texts += [to_llvm(fn, targets.host()), to_c(fn, targets.host())]
for op in (test_kernel.matmul, test_kernel.both):
    schedule = automatic(op.scop(), targets.get("x86-64-v3"), threads=2)
    kernel = compile_kernel(schedule.scop, schedule.tree, backend="interp")
    texts += [kernel.source(kind) for kind in ("loops", "llvm", "c", "asm")]
for t in texts:
    print(hashlib.sha256(t.encode()).hexdigest())
"""


def test_text_does_not_depend_on_the_hash_seed() -> None:
    outputs = []
    for seed in ("0", "12345"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.split())
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 30
