"""How models come in: ONNX files become level 1 programs (`distir.frontends.onnx`)."""
