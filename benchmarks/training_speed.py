"""How fast training steps run beside hand-written PyTorch (`training_references`): one rank against eager; on two ranks of gloo replicas against
DistributedDataParallel and FSDP, tensor parallel against `parallelize_module`, a pipeline against `torch.distributed.pipelining`, each of the same schedule.

    python -m benchmarks.training_speed [--pairs 7] [--beside eager DDP ...] [gpt mlp llama resnet]

Steps of both take turns in the same processes, one thread each; a ratio is the median of PyTorch's seconds over those of the program (above
1: the program is faster). The second ratio is of rank 0's CPU seconds, which other work on the machine disturbs less. Plans are those of `training_references.PLANS`. The ResNet is normalised by groups: over a batch in parts, batch norm is another model.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, silu

from benchmarks.training_references import PLANS, reference_step

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

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


class Bottleneck(nn.Module):
    def __init__(self, entering: int, width: int, stride: int) -> None:
        super().__init__()
        shapes = ((entering, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        self.body = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in shapes)
        self.norms = nn.ModuleList(nn.GroupNorm(8, b) for _, b, _, _ in shapes)
        self.around = nn.Conv2d(entering, 4 * width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for i, (convolution, norm) in enumerate(zip(self.body, self.norms, strict=True)):
            y = norm(convolution(y))
            y = torch.relu(y) if i < 2 else y
        return torch.relu(y + self.around(x))


def resnet() -> Made:
    blocks = [Bottleneck(a, w, s) for a, w, s in ((32, 32, 1), (128, 32, 1), (128, 64, 2), (256, 64, 1), (256, 128, 2))]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    model = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.GroupNorm(8, 32), nn.ReLU(), *blocks, *head)
    return model, flat_loss, (torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)))


MODELS = {"gpt": gpt, "mlp": mlp, "llama": llama, "resnet": resnet}
CUT_BY_BATCH = ("eager", "DDP", "FSDP")
"""What a ResNet is measured beside: its channels are few, its stages are not alike."""


@dataclass
class Prepared:
    """A model's training step under a plan, as this rank runs it."""

    module: ModuleOp
    """The program of all ranks."""
    arguments: list[torch.Tensor]
    step: Callable[[], list[torch.Tensor]]
    made: Made
    """The model in PyTorch, with the same first weights."""


def prepared(name: str, plan: dict[str, Any], folder: str, rank: int, ranks: int) -> Prepared:
    """Meets the other ranks in the folder, and makes this rank's program."""
    import copy

    import torch.distributed as dist
    from xdsl.context import Context

    from distir.backends.torch.elements import ElementTypes
    from distir.backends.torch.fetches import begun_by_callers
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
    imported = copy.deepcopy(model)
    step = training_step(imported, loss_of, torch.optim.AdamW(imported.parameters(), lr=1e-3), example_args=batch)
    module = import_step(step, batch)
    values = {n: v for n, v in weights_of(module).items()}
    names = [p.name for p in arguments_of(entry_function(module)) if p.role in ("input", "label")]
    values |= {n: b.numpy() for n, b in zip(names, batch, strict=True)}
    device = torch.device("cpu")
    if ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
        DtpParallelizePass(**plan).apply(Context(), module)
    run_as = begun_by_callers(module)
    programs = [project(run_as, r) for r in range(ranks)]
    distir_runtime.start(rank, device, communication_groups(programs))
    own = entry_function(programs[rank])
    main = Program(programs[rank], ElementTypes(), device).function("main")
    ports, results = arguments_of(own), results_of(own)
    arguments = [torch.from_numpy(v.copy()) for v in distribute([Site(rank, p) for p in ports], values)]
    made = {p.name: i for i, p in enumerate(results)}
    updates = {i: made[p.name] for i, p in enumerate(ports) if p.name in made}

    def ours() -> list[torch.Tensor]:
        with torch.inference_mode():
            return distir_runtime.step(main, arguments, updates)

    return Prepared(module, arguments, ours, (model, loss_of, batch))


def work(name: str, pairs: int, beside: str, folder: str, rank: int, ranks: int) -> None:
    """One rank: the program and PyTorch in turns. Rank 0 writes the seconds."""
    import torch.distributed as dist

    program = prepared(name, PLANS[beside], folder, rank, ranks)
    ours, theirs = program.step, reference_step(beside, *program.made, rank)

    def seconds(run: Callable[[], Any]) -> tuple[float, float]:
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


def measure(name: str, pairs: int, beside: str) -> list[tuple[float, float, float, float]]:
    """Of each pair: seconds and CPU seconds of the program, seconds and CPU seconds of PyTorch."""
    options = ["--pairs", str(pairs), "--beside", beside]
    with TemporaryDirectory() as folder:
        run_ranks("benchmarks.training_speed", name, 1 if beside == "eager" else 2, folder, options)
        return eval(Path(folder, "seconds").read_text())


def run_ranks(module: str, name: str, ranks: int, folder: str, options: Sequence[str]) -> None:
    """Runs each rank of a benchmark of a model in a process."""
    import subprocess

    from distir.backends.torch.forks import environment

    command = [sys.executable, "-m", module, *options, "--rank"]
    processes = [
        subprocess.Popen([*command, str(rank), str(ranks), folder, name], env={**environment(), **os.environ})
        for rank in range(ranks)
    ]
    if any([process.wait() for process in processes]):
        raise SystemExit(f"{name} {' '.join(options)} failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--beside", nargs="+", default=list(PLANS), choices=list(PLANS))
    parser.add_argument("--rank", nargs=3)
    given = parser.parse_args()
    if given.rank:
        work(given.models[0], given.pairs, given.beside[0], given.rank[2], int(given.rank[0]), int(given.rank[1]))
        return
    print(f"{'model':8}{'beside':12}{'program':>12}{'PyTorch':>12}{'ratio':>8}{'CPU':>8}")
    for name in given.models:
        for beside in given.beside:
            if name == "resnet" and beside not in CUT_BY_BATCH:
                continue
            found = measure(name, given.pairs, beside)
            ours, _, theirs, _ = (statistics.median(column) for column in zip(*found, strict=True))
            ratio, cpu = (statistics.median(pair[i + 2] / pair[i] for pair in found) for i in (0, 1))
            print(f"{name:8}{beside:12}{ours * 1e3:9.1f} ms{theirs * 1e3:9.1f} ms{ratio:8.3f}{cpu:8.3f}", flush=True)


if __name__ == "__main__":
    main()
