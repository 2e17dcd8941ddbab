"""What a program can say: `dist`, `rank`, the sharding attributes, `grad`, `random` (draws by position), Shardy's `sdy` annotations, and the generated
`onnx`, `aten` and `jax` dialects."""
