"""From an ONNX file to the graph IR with concrete shapes; everything that distrusts the file."""
