"""Finished loops as MLIR: functions of memrefs in the dialects `affine`, `arith`, `math`, `memref`, `scf`, `vector`."""
