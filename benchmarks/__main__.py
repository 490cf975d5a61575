"""`python -m benchmarks [--json FILE]`: all timings, one thread, printed and saved."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

# One thread for every library, set before any of them is imported.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.models import against_onnxruntime, light_model  # noqa: E402
from benchmarks.operators import matmul_case  # noqa: E402
from benchmarks.report import page  # noqa: E402

LIGHT = ("resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v1")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--page", type=Path, help="write a Markdown page here")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cold:
        os.environ["POLYC_CACHE"] = cold  # so that compile times are cold
        rows = [matmul_case(*mnk, options.rounds) for mnk in ((1000, 1000, 1000), (512, 512, 512), (128, 768, 768))]
        rows += [against_onnxruntime(light_model(n), options.rounds) for n in LIGHT]
    table = Table("case", "polyc ms", "ONNX Runtime ms", "ratio (higher is better)", "largest difference")
    for r in rows:
        table.add_row(
            r["case"], f"{r['polyc_ms']:.2f}", f"{r['onnxruntime_ms']:.2f}", f"{r['ratio']:.2f}",
            f"{r['largest_relative_difference']:.1e}",
        )  # fmt: skip
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.page:
        options.page.write_text(page(rows, options.rounds), encoding="utf-8")


if __name__ == "__main__":
    main()
