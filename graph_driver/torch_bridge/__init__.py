"""PyTorch in front of the compiler: FX graphs of ATen operators become graphs of polyc's IR.

`backend.py` is what `torch.compile(backend="polyc")` calls: AOTAutograd hands it a graph for the forward and one for
the backward pass, `conversion.py` turns each into a `Graph` (node by node, by the table of `aten/`), the stages that
ONNX models go through compile it, and `program.py` runs it on the memory of torch's tensors. An operator that the table
does not have, or not for these operands, is one eager call of torch in the plan (`eager.py`), named by the report.

To add an ATen operator: write a function in the file of `aten/` that its subject belongs to, with the decorator
`@aten("name.overload", ...)`. It gets the `Lowering` and then the arguments as ATen has them: tensors are `Value`s
(dtype and shape are known), everything else is plain Python. It builds nodes with `b.op(kind, *operands, **attributes)`
(ONNX's operators, opset 22) and returns a `Value`, or a list of them for several results. The dtype is mended to what
torch says and the shape is checked by the caller. What it is not for it refuses: `raise Unsupported(reason)`; the node
then runs in eager mode. `python -m polyc.graph_driver.torch_bridge.coverage` says what is there.
"""
