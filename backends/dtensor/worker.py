"""One rank's process of a DTensor run, started by `run`.

In go the program and its arguments, the same on every rank; out come the results, written by the first rank."""

from __future__ import annotations

from pathlib import Path

from distir.backends.torch.exchange import Job, inputs_path, load_arrays, outputs_path, parse, program_path, save_arrays
from distir.backends.torch.worker import join


def work(folder: Path, rank: int, job: Job) -> None:
    """Everything that one rank does."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from distir.backends.dtensor.conversions import Conversions
    from distir.backends.dtensor.plan import plan_of
    from distir.backends.dtensor.program import Program
    from distir.backends.torch.elements import ElementTypes, plain_array

    module = parse(program_path(folder, 0).read_text("utf-8"))
    plan = plan_of(module, job.entry)
    device = join(folder, rank, job)
    types = ElementTypes(job.in_float64)
    axes = tuple(name for name, _ in plan.mesh.axes)
    devices = init_device_mesh(device.type, plan.mesh.sizes, mesh_dim_names=axes)
    arguments = [types.tensor(array, device) for array in load_arrays(inputs_path(folder, 0))[0]]
    with torch.no_grad():
        results = Program(module, plan, Conversions(plan.mesh, devices), types)(arguments)
    if rank == 0:
        save_arrays(outputs_path(folder, rank), [plain_array(value) for value in results])
    dist.barrier()
    dist.destroy_process_group()
