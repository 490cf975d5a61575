"""Helpers of other rooms that these tests use."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path += [str(TESTS / "emit"), str(TESTS / "graph_driver")]
