"""How models come in, as level 1 programs: ONNX files (`distir.frontends.onnx`), PyTorch steps (`distir.frontends.pytorch`), JAX
functions (`distir.frontends.jax`)."""
