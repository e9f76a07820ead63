"""Export of a model as ONNX, for other runtimes."""
