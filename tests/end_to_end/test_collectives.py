"""Collectives of tuples between CPUs, which are messages, beside arrays that are cut and joined by hand: large and small tensors, uneven parts, members in
another order than their ranks, several element types, at once and beside what follows."""

import subprocess
import sys
from pathlib import Path

from tests.end_to_end.commands import environment

ROOT = Path(__file__).parents[2]
RANKS = """
import os, sys, torch
import torch.distributed as dist
from functools import reduce
from distir.backends.torch.portable import distir_collectives, distir_runtime
rank = 0
for other in (1, 2):
    rank = rank or (0 if os.fork() else other)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=3)
distir_runtime.start(rank, torch.device("cpu"), [[0, 1, 2], [0, 2]])
draw = torch.Generator().manual_seed(0)
COMBINED = {"sum": torch.add, "max": torch.maximum, "prod": torch.mul}

def whole(shape, dtype):
    return (torch.randn(shape, generator=draw) * 3).to(dtype)

def parts(x, dim, order, extents):
    return dict(zip(order, x.split(extents, dim)))

for order, shares in (([2, 0, 1], [3, 1, 2]), ([0, 2], [2, 2]), ([0, 1, 2], [2, 2, 2])):
    for dim in (0, 1):
        shapes = [(6 * 40, 6 * 70), (6, 12), (12, 600), (6, 6)] if len(order) == 3 else [(4 * 70, 4 * 70), (4, 8)]
        types = [torch.float32, torch.float32, torch.bfloat16, torch.int64][: len(shapes)]
        total = sum(shares)
        extents = [[n * shape[dim] // total for n in shares] for shape in shapes]
        for beside in (False, True):
            values = [whole(shape, dtype) for shape, dtype in zip(shapes, types)]
            addends = {r: [whole(shape, dtype) for shape, dtype in zip(shapes, types)] for r in order}
            if rank not in order:
                continue
            gather = distir_collectives.AllGather(dim, order)
            mine = tuple(parts(x, dim, order, e)[rank] for x, e in zip(values, extents))
            found = gather.start(mine).wait() if beside else gather(mine)
            for got, x in zip(found, values):
                assert torch.equal(got, x), ("allgather", order, dim, beside)
            for reduction in ("sum", "max", "prod"):
                own = [e[order.index(rank)] for e in extents]
                scatter = distir_collectives.ReduceScatter(reduction, dim, own, order)
                given = tuple(addends[rank])
                found = scatter.start(given).wait() if beside else scatter(given)
                for i, (got, e) in enumerate(zip(found, extents)):
                    expected = reduce(COMBINED[reduction], [addends[r][i] for r in order])
                    torch.testing.assert_close(got, parts(expected, dim, order, e)[rank])
dist.barrier()
print(f"done {rank}\\n", end="", flush=True)  # one write, so that ranks do not mix
os._exit(0) if rank else [os.wait() for _ in range(2)]
os._exit(0)
"""


def test_parts_of_tuples(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RANKS, str(tmp_path / "meeting")],
        capture_output=True,
        text=True,
        env=environment() | {"PYTHONPATH": str(ROOT / ".ns"), "OMP_NUM_THREADS": "1"},
        timeout=120,
    )
    assert sorted(ran.stdout.split()) == ["0", "1", "2", "done", "done", "done"], ran.stderr
