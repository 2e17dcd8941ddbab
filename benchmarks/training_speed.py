"""How fast training steps run beside hand-written PyTorch: one rank against eager, two replicas against DistributedDataParallel, on gloo.

    python -m benchmarks.training_speed [--pairs 7] [gpt mlp llama]

Steps of both take turns in the same processes, one thread each; a ratio is the median of eager's or DDP's seconds over those of the program (above
1: the program is faster). The second ratio is of rank 0's CPU seconds, which other work on the machine disturbs less. The plan of two replicas is that of `dtp-parallelize{dp=2 overlap=true}`: gradients are reduced on a stream of their own, as DDP does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, silu

Made = tuple[nn.Module, Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]


def flat_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.flatten(0, -2), labels.flatten())


def gpt() -> Made:
    from examples.gpt2_pytorch import GPT2

    tokens = torch.randint(0, 1000, (8, 64))
    return GPT2(4, 384, 6, 1000, 64), flat_loss, (tokens, torch.randint(0, 1000, (8, 64)))


def mlp() -> Made:
    layers = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return (
        nn.Sequential(*layers, nn.Linear(1024, 10)),
        flat_loss,
        (torch.randn(256, 1024), torch.randint(0, 10, (256,))),
    )


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 8 * width // 3, bias=False) for _ in range(2))
        self.down = nn.Linear(8 * width // 3, width, bias=False)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        h = self.norm_1(x)
        q, k, v = (f(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(hidden, float("-inf"))
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        h = self.norm_2(x)
        return x + self.down(silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        n = tokens.shape[1]
        hidden = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.norm(x))


def llama() -> Made:
    return Llama(4, 384, 6, 1000), flat_loss, (torch.randint(0, 1000, (8, 64)), torch.randint(0, 1000, (8, 64)))


MODELS = {"gpt": gpt, "mlp": mlp, "llama": llama}


def work(name: str, pairs: int, folder: str, rank: int, ranks: int) -> None:
    """One rank: the program and PyTorch in turns. Rank 0 writes the seconds."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from xdsl.context import Context

    from distir.backends.torch.elements import ElementTypes
    from distir.backends.torch.launch import communication_groups
    from distir.backends.torch.portable import distir_runtime
    from distir.backends.torch.program import Program
    from distir.frontends.pytorch import import_step, training_step
    from distir.interpreters.entry import arguments_of, entry_function, results_of
    from distir.interpreters.global_arrays import Site, distribute
    from distir.interpreters.weights import weights_of
    from distir.passes.dtp_parallelize import DtpParallelizePass
    from distir.passes.project_to_rank import project

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, loss_of, batch = MODELS[name]()
    import copy

    imported = copy.deepcopy(model)
    step = training_step(imported, loss_of, torch.optim.AdamW(imported.parameters(), lr=1e-3), example_args=batch)
    module = import_step(step, batch)
    values = {n: v for n, v in weights_of(module).items()}
    names = [p.name for p in arguments_of(entry_function(module)) if p.role in ("input", "label")]
    values |= {n: b.numpy() for n, b in zip(names, batch, strict=True)}
    device = torch.device("cpu")
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
        DtpParallelizePass(dp=ranks, overlap=True).apply(Context(), module)
    programs = [project(module, r) for r in range(ranks)]
    distir_runtime.start(rank, device, communication_groups(programs))
    own = entry_function(programs[rank])
    main = Program(programs[rank], ElementTypes(), device).function("main")
    ports, results = arguments_of(own), results_of(own)
    arguments = [torch.from_numpy(v.copy()) for v in distribute([Site(rank, p) for p in ports], values)]
    made = {p.name: i for i, p in enumerate(results)}
    updates = {i: made[p.name] for i, p in enumerate(ports) if p.name in made}

    def ours() -> None:
        with torch.inference_mode():
            distir_runtime.step(main, arguments, updates)

    trained: Any = DistributedDataParallel(model) if ranks > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = [b.chunk(ranks)[rank] for b in batch]

    def theirs() -> None:
        optimizer.zero_grad()
        loss_of(trained(*rows[:-1]), rows[-1]).backward()
        optimizer.step()

    def seconds(run: Callable[[], None]) -> tuple[float, float]:
        if ranks > 1:
            dist.barrier()
        start, cpu = time.perf_counter(), time.process_time()
        run()
        if ranks > 1:
            dist.barrier()
        return time.perf_counter() - start, time.process_time() - cpu

    for run in (ours, theirs, ours, theirs):
        run()
    found = [(*seconds(ours), *seconds(theirs)) for _ in range(pairs)]
    if rank == 0:
        Path(folder, "seconds").write_text(repr(found))
    if ranks > 1:
        dist.destroy_process_group()


def measure(name: str, pairs: int, ranks: int) -> list[tuple[float, float, float, float]]:
    """Of each pair: seconds and CPU seconds of the program, seconds and CPU seconds of PyTorch."""
    import subprocess

    from distir.backends.torch.launch import environment

    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.training_speed", "--pairs", str(pairs), "--rank"]
        processes = [
            subprocess.Popen([*command, str(rank), str(ranks), folder, name], env={**environment(), **os.environ})
            for rank in range(ranks)
        ]
        if any([process.wait() for process in processes]):
            raise SystemExit(f"{name} failed")
        return eval(Path(folder, "seconds").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--rank", nargs=3)
    given = parser.parse_args()
    if given.rank:
        work(given.models[0], given.pairs, given.rank[2], int(given.rank[0]), int(given.rank[1]))
        return
    print(f"{'model':8}{'beside':10}{'program':>12}{'PyTorch':>12}{'ratio':>8}{'CPU':>8}")
    for name in given.models:
        for ranks, beside in ((1, "eager"), (2, "DDP")):
            found = measure(name, given.pairs, ranks)
            ours, _, theirs, _ = (statistics.median(column) for column in zip(*found, strict=True))
            ratio, cpu = (statistics.median(pair[i + 2] / pair[i] for pair in found) for i in (0, 1))
            print(f"{name:8}{beside:10}{ours * 1e3:9.1f} ms{theirs * 1e3:9.1f} ms{ratio:8.3f}{cpu:8.3f}", flush=True)


if __name__ == "__main__":
    main()
