"""How a program leaves: per-rank execution on torch.distributed (`torch`), ONNX files (`onnx`), JAX functions with sharding
constraints (`jax`), traces and reports."""
