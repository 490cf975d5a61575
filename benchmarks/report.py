"""The page of results: figures with the machine, the versions and the date beside them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any


def page(rows: Sequence[dict[str, Any]], rounds: int) -> str:
    """Markdown for a list of result rows."""
    from graph_driver.doctor import examine

    found = examine()
    versions = ", ".join(f"{p} {version(p)}" for p in ("polyc", "llvmlite", "islpy", "numpy", "onnxruntime"))
    lines = [
        "# Timings on the CPU, one thread",
        "",
        f"Date {datetime.date.today()}; CPU {found['cpu']} ({found['vector_bits']}-bit vectors, "
        f"{found['threads']} cores, L2 {found['caches']['l2'] >> 10} KiB, L3 {found['caches']['l3'] >> 20} MiB); "
        f"Python {found['python']}; {versions}.",
        "",
        f"Minimum and median of {rounds} interleaved rounds in one process pinned to one core. "
        "Ratio = ONNX Runtime's minimum / polyc's minimum; above 1 polyc is faster. "
        "No tuning; compile times are with a cold cache.",
        "",
        "| case | polyc ms (median) | ONNX Runtime ms (median) | ratio | GFLOP/s | difference | compile |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for r in rows:
        lines.append(
            f"| {r['case']} | {r['polyc_ms']:.2f} ({r['polyc_median_ms']:.2f}) "
            f"| {r['onnxruntime_ms']:.2f} ({r['onnxruntime_median_ms']:.2f}) | {r['ratio']:.2f} "
            f"| {r.get('polyc_gflops', '')} | {r['largest_relative_difference']:.1e} | {r['compile_s']:.2f} s |"
        )
    lines += [
        "",
        "The light models repeat one number in every weight, so their differences say little; "
        "`tests/test_models.py` checks them with random weights.",
    ]
    lines += ["", "Repeat with `python -m benchmarks --json FILE --page FILE`.", ""]
    return "\n".join(lines)
