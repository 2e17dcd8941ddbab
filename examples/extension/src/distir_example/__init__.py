"""One of each thing that a package adds to distir. In goes nothing: distir calls `register`, which the entry point names; what is
registered is a place, and is imported when a program first needs it."""

from __future__ import annotations

from pathlib import Path

import distir


def register() -> None:
    """Called once in every process that looks something up: commands, workers, Python."""
    # the operations
    distir.register_dialect("example", "distir_example.dialect:Example")
    # what an operator means
    distir.register_meaning(
        "example",
        distir.Meaning(
            reference="distir_example.meaning:run",
            types="distir_example.meaning:infer",
            work="distir_example.meaning:work",
        ),
    )
    distir.register_kernels("example", "distir_example.kernels:compile_kernel")
    # what a communication operation means
    distir.register_implementations("reference", "distir_example.ring:RingArrays")
    distir.register_implementations("placement", "distir_example.ring:RingPlaces")
    distir.register_implementations("costs", "distir_example.ring:RingCosts")
    distir.register_implementations("proof", "distir_example.ring:RingShards")
    distir.register_lowering("example.ring_exchange", "distir_example.ring:lower")
    # passes
    distir.register_pass("example-fuse", "distir_example.passes:ExampleFusePass")
    distir.register_pass("example-ring", "distir_example.passes:ExampleRingPass")
    # how plans are made and judged
    distir.register_schedule("eager-1f1b", "distir_example.schedule:eager_1f1b")
    distir.register_cost_model("roofline", "distir_example.cost_model:RooflineCostModel")
    distir.register_kernel_backend("rows", "distir_example.kernel_backend:ROWS")
    distir.register_machine("example-ring", Path(__file__).with_name("example-ring.toml"))
    # how models come in
    distir.register_onnx_domain("com.example", "distir_example.models:import_node")
    distir.register_frontend(".layers", "distir_example.models:import_layers")
