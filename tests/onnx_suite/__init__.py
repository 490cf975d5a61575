"""ONNX's own node suite (`onnx.backend.test`) through polyc's back end, counted by class and operator."""
