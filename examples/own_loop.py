"""A plan in a loop of one's own: a small GPT-2 learns a text, on two replicas.

torchrun --nproc-per-node=2 examples/own_loop.py
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import distir
from examples.gpt2_pytorch import BATCH, SEQUENCE, loss, make


def batches(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Global batches: every process draws the same."""
    text = torch.tensor(list((Path(__file__).parent / "text" / "shakespeare.txt").read_bytes()))
    draw = torch.Generator().manual_seed(0)
    starts = torch.randint(0, len(text) - SEQUENCE - 1, (steps, BATCH), generator=draw)
    rows = [torch.stack([text[s : s + SEQUENCE + 1] for s in row]) for row in starts.tolist()]
    return [(row[:, :-1], row[:, 1:]) for row in rows]


def main(steps: int = 20) -> None:
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    given = batches(steps)
    processes = torch.distributed.is_torchelastic_launched()
    step = distir.parallelize(model, optimizer, loss, {"dp": 2} if processes else {}, given[0])
    for number, batch in enumerate(given, 1):
        value = step(*batch)
        if step.rank == 0:
            print(f"step {number}  loss {value:.6f}", flush=True)
    step.copy_to(model)


if __name__ == "__main__":
    main()
