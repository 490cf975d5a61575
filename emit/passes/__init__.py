"""Passes on the loop IR: each takes a `Function` and returns a new one; `emit.verify` runs between them."""
