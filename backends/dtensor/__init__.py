"""Runs annotated modules on PyTorch's DTensor. In goes a module with a search's shardings; out come placements, or
outputs:

    placements(module)                  by name what `distribute_tensor` takes for every argument of the entry
    parallelize(model, module, mesh)    makes the parameters of a `torch.nn.Module` DTensors accordingly
    run(module, inputs)                 executes the sequential program on DTensors, one process per device of the mesh

`plan` reads the module; in a worker, `program` runs operations on shards and `conversions` redistributes values between
them. Only `placements`, `parallelize` and workers import torch."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import numpy as np
from numpy.typing import DTypeLike
from xdsl.dialects.builtin import ModuleOp

from distir.backends.dtensor.plan import parallelize, placements, plan_of
from distir.backends.torch.exchange import Job, inputs_path, load_arrays, outputs_path, program_path, save_arrays
from distir.backends.torch.launch import Workers
from distir.interpreters.entry import arguments_of, results_of
from distir.interpreters.global_arrays import Array, Site, distribute
from distir.interpreters.weights import weights_of

__all__ = ["parallelize", "placements", "run"]


def run(
    module: ModuleOp,
    inputs: Mapping[str, Array],
    backend: str = "gloo",
    dtype: DTypeLike | None = None,
    *,
    entry: str = "main",
    timeout_seconds: float | None = None,
) -> dict[str, Array]:
    """The outputs of an annotated program, by name, as global arrays, computed on DTensors by as many processes as the mesh
    has devices. An argument without an input gets the value that the module carries; with `dtype=np.float64` floating
    point is computed in double.

    Raises DistirError for a module that is not annotated, for an input that is missing or does not fit, and for a
    rank that fails or dies."""
    plan = plan_of(module, entry)
    values = ChainMap(dict(inputs), cast(dict[str, Array], weights_of(module)))
    floating = None if dtype is None else np.dtype(dtype)
    arguments = distribute([Site(0, port) for port in arguments_of(plan.entry)], values, floating)
    with TemporaryDirectory(prefix="distir-") as name:
        folder = Path(name)
        Job(backend, plan.mesh.devices, entry, [], 0, floating is not None).save(folder)
        program_path(folder, 0).write_text(str(module), "utf-8")
        save_arrays(inputs_path(folder, 0), arguments)
        with Workers(folder, plan.mesh.devices, "distir.backends.dtensor.worker") as workers:
            workers.wait(timeout_seconds)
        results, _ = load_arrays(outputs_path(folder, 0))
    return {port.name: array for port, array in zip(results_of(plan.entry), results, strict=True)}
