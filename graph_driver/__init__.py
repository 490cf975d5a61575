"""Whole models: ONNX import, graph passes, fusion, memory planning, execution, command line."""
