"""Model -> ONNX file."""
