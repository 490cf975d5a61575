"""Types and shapes of a node's results: from numbers by onnx, from symbolic sizes by rules of our own."""
