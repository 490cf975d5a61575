"""Passes on the loop IR: each takes a `Function` and returns a new one; `emit.loop_ir.verify` runs between them."""
