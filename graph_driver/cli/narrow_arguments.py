"""Arguments of the commands that make models narrow: `quantize`, `prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def quantize_arguments(commands: Any) -> None:
    """`quantize`: a model with narrow layers."""
    make = commands.add_parser("quantize", help="bring a model's layers to 8 or 4 bits", allow_abbrev=False)
    make.add_argument("model", type=Path, metavar="MODEL.onnx")
    make.add_argument("--data", type=Path, required=True, metavar="NPZ", help="an array of samples for each input")
    make.add_argument("-o", "--output", type=Path, metavar="OUT", help="the file (default: MODEL.8bit.onnx)")
    make.add_argument("--weights", type=int, choices=(8, 4), default=8, help="bits of weights (default: 8)")
    way = make.add_mutually_exclusive_group()
    way.add_argument("--static", action="store_true", help="ranges of activations from the data (default)")
    way.add_argument("--dynamic", action="store_true", help="ranges of activations from each run")
    make.add_argument(
        "--calibration", choices=("minmax", "percentile", "entropy"), default="minmax", help="of --static: which ranges"
    )
    make.add_argument(
        "--max-error", type=float, metavar="E", help="the worst layers stay f32 until outputs are as near"
    )
    make.add_argument("--keep-f32", metavar="A,B", help="layers or operators that stay f32")
    make.add_argument("--threads", type=int, metavar="N", help="of the runs (default: all cores)")
    make.add_argument("--json", action="store_true", help="machine-readable output")


def prune_arguments(commands: Any) -> None:
    """`prune`: a model with blocks of zeros."""
    make = commands.add_parser("prune", help="set blocks of a model's weights to zero", allow_abbrev=False)
    make.add_argument("model", type=Path, metavar="MODEL.onnx")
    make.add_argument("--data", type=Path, required=True, metavar="NPZ", help="an array of samples for each input")
    make.add_argument("-o", "--output", type=Path, metavar="OUT", help="the file (default: MODEL.pruned.onnx)")
    make.add_argument("--share", type=float, default=0.5, metavar="S", help="of blocks that become zero (default: 0.5)")
    make.add_argument("--rows", type=int, default=4, metavar="N", help="of a block of 32 columns (default: 4)")
    make.add_argument("--keep", metavar="A,B", help="layers or operators that stay as they are")
    make.add_argument("--threads", type=int, metavar="N", help="of the runs (default: all cores)")
    make.add_argument("--json", action="store_true", help="machine-readable output")
