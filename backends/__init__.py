"""Backends: a program goes in; a run, a file or a report comes out. `torch` runs one process per rank on
torch.distributed, `onnx` writes ONNX files, `jax` gives functions with sharding constraints, `dtensor` DTensor
placements and runs, `shardy` Shardy annotations; there are timelines (`trace`) and reports (`report`)."""
