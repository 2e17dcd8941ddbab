"""What a program can say: `dist`, `rank`, the sharding attributes, `grad`, and the generated `onnx` and `aten` dialects."""
