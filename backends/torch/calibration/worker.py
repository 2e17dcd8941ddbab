"""One process of a calibration, started by `measure`. In goes a folder with probes; out come the seconds of each
run.

It compiles each probe as the backend compiles any program, and runs it as often as asked. All processes run the same
probe at the same time."""

from __future__ import annotations

import json
import time
from itertools import count
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp

from distir.backends.torch.exchange import Job, parse, probe_path, times_path
from distir.backends.torch.worker import join


def work(folder: Path, rank: int, job: Job) -> None:
    """Runs every probe of the folder."""
    import torch
    import torch.distributed as dist

    from distir.backends.torch.elements import ElementTypes
    from distir.backends.torch.portable import distir_runtime
    from distir.backends.torch.program import Program

    device = join(folder, rank, job)
    types = ElementTypes(False)
    distir_runtime.start(rank, device, job.groups)
    torch.manual_seed(0)
    with torch.inference_mode(), times_path(folder, rank).open("w") as file:
        for number in count():
            if not (path := probe_path(folder, number, rank)).exists():
                break
            module = parse(path.read_text("utf-8"))
            function = Program(module, types, device).function(job.entry)
            (entry,) = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
            given = [cast(TensorType[Any], argument.type) for argument in entry.body.block.args]
            arguments = [distir_runtime.empty(t.get_shape(), types.of(t.element_type)).normal_() for t in given]
            runs: list[tuple[float, float]] = []
            for _ in range(1 + job.measure):
                dist.barrier()
                start = time.perf_counter()
                function(list(arguments))
                issued = time.perf_counter() - start
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                runs.append((time.perf_counter() - start, issued))
            file.write(json.dumps(runs[1:]) + "\n")
            file.flush()
    dist.barrier()
    dist.destroy_process_group()
