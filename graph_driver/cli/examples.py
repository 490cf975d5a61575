"""Examples of each command, which its `--help` prints; a test parses every one."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "compile": (
        ("polyc compile model.onnx", "into model.polyc, for this machine"),
        ("polyc compile model.onnx --dim batch=8 --threads 2 -o out", "sizes and threads that are known now"),
        ("polyc compile model.onnx --target c -o sources", "C99 for any machine"),
        ("polyc compile model.onnx --stop-after frontend --emit graph", "the graph as text"),
    ),
    "run": (
        ("polyc run model.onnx --check", "random inputs, compared with a reference"),
        ("polyc run model.polyc --input x=x.npy --save y.npz", "a compiled directory on your data"),
        ("polyc run model.onnx --mode mixed --eager 'Softmax*' --tensor h", "some steps one at a time"),
    ),
    "bench": (
        ("polyc bench model.onnx --against onnxruntime --threads 1", "interleaved rounds, and every slow step"),
    ),
    "inspect": (
        ("polyc inspect matmul.py:matmul --html matmul.html", "all stages of an operator as a page"),
        ("polyc inspect model.onnx --stage stats", "flops and bytes before and after the passes"),
        ("polyc inspect model.onnx --kernel 3 --stage asm", "one kernel's machine code"),
    ),
    "build": (
        ("polyc build matmul.py:matmul --size M=64 --emit c,h,so -o out", "an operator as files"),
    ),
    "explain": (
        ("polyc explain matmul.py:matmul --dim M=512 --dim N=512 --dim K=512", "why this schedule"),
        ("polyc explain model.onnx --verbose", "fusion, layouts, implementations, every kernel"),
    ),
    "explain-error": (
        ("polyc explain-error P202", "what it means that a schedule is illegal, and what to do"),
    ),
    "why": (
        ("polyc why model.onnx --output 'y[0, 3]' --picture why.svg", "what an element depends on"),
        ("polyc why model.onnx --input 'x[0, 0, 5:9, 5:9]'", "what depends on a patch"),
    ),
    "bounds": (
        ("polyc bounds model.onnx --range x=-1..1", "how far each output may be from exact arithmetic"),
        ("polyc bounds model.onnx --range x=picture.npy --save bounds.npz", "for one input; by element"),
        ("polyc bounds f.py:OP --dim N=4096 --range x=-1..1 --at-most 0.05", "sums in blocks that keep it"),
    ),
    "certify": (
        ("polyc certify matmul.py:matmul -o proofs", "certificates, and a checker that needs islpy alone"),
    ),
    "diff": (
        ("polyc diff matmul.py:matmul mine.yaml", "a schedule beside the automatic one"),
    ),
    "bisect": (
        ("polyc bisect matmul.py:matmul steps.jsonl --slower 1.5", "the step that made it slower"),
    ),
    "tune": (
        ("polyc tune model.onnx --trials 64 --threads 1", "then compile with --tuned"),
    ),
    "quantize": (
        ("polyc quantize model.onnx --data samples.npz -o narrow.onnx", "weights and operands in bytes"),
    ),
    "prune": (
        ("polyc prune model.onnx --data samples.npz --share 0.75 -o thin.onnx", "three of four blocks are zeros"),
    ),
    "cache": (
        ("polyc cache list", "finished programs with their sizes"),
        ("polyc cache clear --only kernels", "of all kernels, nothing of programs"),
    ),
    "passes": (
        ("polyc passes --json", "the graph passes as data"),
    ),
    "doctor": (
        ("polyc doctor --measure", "what this machine has and does"),
    ),
}  # fmt: skip


def epilog(command: str) -> str:
    """What `--help` prints at the end; empty for a command without examples."""
    rows = EXAMPLES.get(command, ())
    return "\n".join(["examples:", *(f"  {line}\n      {what}" for line, what in rows)]) if rows else ""
