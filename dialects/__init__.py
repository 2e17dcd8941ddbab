"""What a program can say: `dist`, `rank`, the sharding attributes, `grad`, Shardy's `sdy` annotations, and the generated
`onnx`, `aten` and `jax` dialects."""
