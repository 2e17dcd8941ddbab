"""One process of a calibration: `python -m distir.backends.torch.calibration.worker FOLDER RANK`, started by `measure`.

It compiles each probe as the backend compiles any program, runs it as often as asked, and writes the seconds of each run; all
processes run the same probe at the same time."""

from __future__ import annotations

import json
import time
from itertools import count
from pathlib import Path

from xdsl.dialects.func import FuncOp

from distir.backends.torch.exchange import Job, probe_path, times_path
from distir.backends.torch.worker import join, main, parse


def work(folder: Path, rank: int, job: Job) -> None:
    """Runs every probe of the folder."""
    import torch
    import torch.distributed as dist

    from distir.backends.torch.collectives import Communicator
    from distir.backends.torch.elements import ElementTypes
    from distir.backends.torch.program import Program

    device = join(folder, rank, job)
    types = ElementTypes(False)
    communicator = Communicator(rank, [tuple(group) for group in job.groups], types, device)
    torch.manual_seed(0)
    with torch.inference_mode(), times_path(folder, rank).open("w") as file:
        for number in count():
            if not (path := probe_path(folder, number, rank)).exists():
                break
            module = parse(path.read_text("utf-8"))
            function = Program(module, types, device, communicator).function(job.entry)
            (entry,) = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
            arguments = [communicator.empty(argument).normal_() for argument in entry.body.block.args]
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


if __name__ == "__main__":
    main(work)
