"""The page of results, with the device, the versions and the date beside the figures."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Sequence
from typing import Any


def page(rows: Sequence[dict[str, Any]], about: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        "# Timings on a GPU", "",
        f"Date {about['date']}; {about['device']} through {about['interface']}, target {about['target']}; "
        f"{about['versions']}.", "",
        f"Milliseconds: median (minimum) of {about['rounds']} interleaved rounds between events of the device, inputs "
        "and outputs on the device. Share = the other's median / polyc's median; above 1 polyc is faster. A copy moves "
        "as many bytes as the operator must. The error is to float64, relative to the largest value. No tf32.", "",
        "| case | polyc | others | against | share | wanted | TFLOP/s | GB/s | error | right |",
        f"|{' --- |' * 10}",
    ]  # fmt: skip
    for r in rows:
        if "failed" in r:
            lines.append(f"| {r['case']} | failed: {r['failed']} |" + " |" * 8)
            continue
        times = {who: f"{median:.4f} ({least:.4f})" for who, (median, least) in r["ms"].items()}
        others = ", ".join(f"{who} {t}" for who, t in times.items() if who != "polyc") or "none here"
        cells = [
            r["case"], times["polyc"], others, r["against"], _number(r["share"], ".2f"), _number(r["wanted"], ".2f"),
            _number(r.get("tflops"), ".1f"), _number(r.get("gbytes"), ".0f"), f"{r['error']:.1e}",
            "yes" if r["right"] else "NO",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    for r in rows:
        if "compile seconds" in r:
            each = ", ".join(f"{who} {s:.0f} s" for who, s in r["compile seconds"].items())
            lines += ["", f"{r['case']}: compiled in {each}; launches {r['recording']}."]
    return "\n".join([*lines, "", "Repeat with `python -m benchmarks.gpu --json FILE --page FILE`.", ""])


def about(device: Any, target: str, rounds: int) -> dict[str, Any]:
    """What the figures depend on."""
    versions = [f"{name} {found}" for name in ("polyc", "torch", "triton", "nvidia-cublas", "nvidia-cuda-nvrtc")
                if (found := _version(name))]  # fmt: skip
    return {
        "date": str(datetime.date.today()), "device": device.name, "interface": device.interface, "target": target,
        "rounds": rounds, "versions": ", ".join(versions),
    }  # fmt: skip


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
