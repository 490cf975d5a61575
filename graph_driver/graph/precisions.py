"""What an f32 model may be computed in, by name (`--precision`)."""

from __future__ import annotations

PRECISIONS = (F32, F16, BF16, INT8, AUTO) = ("f32", "f16", "bf16", "int8", "auto")
MEASURED = (INT8, AUTO)
"""Those whose error is measured when the model is compiled."""
