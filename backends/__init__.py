"""How a program leaves: per-rank execution on torch.distributed (`torch`), ONNX files (`onnx`), JAX functions with sharding
constraints (`jax`), DTensor placements and runs (`dtensor`), Shardy annotations (`shardy`), traces and reports."""
