"""One rank's process, started by `launch`.

In goes a folder with its program and arguments; out come its results or its error, in the same folder. It joins the
other ranks before it runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distir.backends.torch.exchange import (
    Failure,
    Job,
    Next,
    load_arguments,
    load_arrays,
    next_path,
    outputs_path,
    parse,
    program_path,
    save_arrays,
    step_path,
)

if TYPE_CHECKING:
    import torch

NO_LIMIT = timedelta(days=1000)
"""The launcher watches over the workers; a rank may wait for a slow one as long as it takes."""


def main(work: Callable[[Path, int, Job], None], folder: Path, rank: int) -> None:
    """Does a rank's work, and ends the process."""
    try:
        work(folder, rank, Job.load(folder))
    except Exception as error:
        Failure(_one_line(error), time.monotonic()).save(folder, rank)
        raise
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(
        0
    )  # all is written: gloo's threads may still let go of tensors, which aborts an interpreter that is being taken down


def work(folder: Path, rank: int, job: Job) -> None:
    """Everything that one rank does."""
    import torch
    import torch.distributed as dist

    from distir.backends.torch.elements import ElementTypes, plain_array
    from distir.backends.torch.heartbeat import Heartbeat
    from distir.backends.torch.portable import distir_runtime
    from distir.backends.torch.program import Program

    heartbeat = Heartbeat(folder, rank)
    module = parse(program_path(folder, rank).read_text("utf-8"))
    heartbeat.reach("rank.init_process_group")
    device = join(folder, rank, job)
    heartbeat.reach("loading of the arguments")
    types = ElementTypes(job.in_float64)
    distir_runtime.start(rank, device, job.groups)
    program = Program(module, types, device)
    entry = program.function(job.entry)
    arguments = [types.tensor(array, device) for array in load_arguments(folder, rank)]

    barrier = heartbeat.site("rank.barrier before a run")
    heartbeat.follow(program.line, program.sites)

    following = Next.load(folder, rank)
    updates = dict(following.updates)

    def one_step() -> list[Any]:
        return distir_runtime.step(entry, arguments, updates)

    def on_copies() -> list[Any]:
        """A run that gets its arguments for itself, and leaves what there is."""
        return entry(copies.pop())

    def timed(run: Callable[[], list[Any]]) -> tuple[list[Any], float]:
        heartbeat.cell[0] = barrier
        dist.barrier()
        heartbeat.cell[1] += 1
        start = time.perf_counter()
        results = run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return results, time.perf_counter() - start

    def tell(step: int) -> None:
        if following.told:
            save_arrays(step_path(folder, rank, step), [plain_array(results[i]) for i in following.told])

    with torch.inference_mode():
        results, first = timed(one_step)
        tell(0)
        for step in range(1, job.following + 1):
            results = []
            for argument, array in zip(following.given, load_arrays(next_path(folder, rank, step))[0], strict=True):
                arguments[argument] = types.tensor(array, device)
            results, first = timed(one_step)
            tell(step)
        seconds = list[float]()
        for _ in range(job.measure):
            copies = [[x.clone() for x in arguments]]
            seconds.append(timed(on_copies)[1])
        seconds = seconds or [first]
    heartbeat.reach("saving of the results")
    save_arrays(outputs_path(folder, rank), [plain_array(value) for value in results], seconds)
    heartbeat.reach("rank.barrier at the end")
    dist.barrier()
    dist.destroy_process_group()


def join(folder: Path, rank: int, job: Job) -> torch.device:
    """Meets the other ranks; the device that this one computes on."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if job.backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    init_file = (folder / "rendezvous").as_uri()
    dist.init_process_group(job.backend, init_method=init_file, rank=rank, world_size=job.world, timeout=NO_LIMIT)
    return device


def _one_line(error: Exception) -> str:
    from distir.dialects.plugins import told

    lines = [line.strip() for line in told(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
