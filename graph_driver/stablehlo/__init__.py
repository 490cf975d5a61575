"""StableHLO's text as a model: what `jax.jit(f).lower(...).as_text()` and TensorFlow's exporter write.

`lexer.py` and `parser.py` read MLIR's pretty and generic forms into `program.py`; `convert.py` writes each operation
down as nodes of ONNX, or as loops of its own (`polyc::Loops`) where ONNX has no such operator, into an ONNX model that
all of polyc takes. Each kind of operation has its file: `elementwise.py`, `movement.py`, `indexed.py`, `windows.py`,
`products.py`, `control.py`; `sink.py` is the model under construction, `terms.py` are regions as expressions.
"""
