"""Runs programs on torch.distributed, one process per device: gloo on CPUs, nccl on GPUs. In go a program and global
input arrays; out come global output arrays.

    run(module, inputs)      the outputs of a level 1 or level 3 program, as global arrays
    execute(module, inputs)  the same with the time that it took, and with options

`launch` starts the processes, by `forks`, and watches over them; each is a `worker`; they exchange files
(`exchange`). In a worker, `source` and `module_text` write the rank's program as a Python module and `program`
compiles it; it calls torch and `portable`, which communicates; for operations that torch has no name for,
`operators` (with `table` and `layers`). `emission` writes the same modules for torchrun. Only workers import torch.
"""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import DTypeLike
from xdsl.dialects.builtin import ModuleOp

from distir.backends.torch.launch import Execution, execute
from distir.interpreters.global_arrays import Array

__all__ = ["Execution", "execute", "run"]


def run(
    module: ModuleOp, inputs: Mapping[str, Array], backend: str = "gloo", dtype: DTypeLike | None = None
) -> dict[str, Array]:
    """The outputs of a program, by name, as global arrays; see `execute`."""
    return execute(module, inputs, backend, dtype=dtype).outputs
